package link_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
)

func TestNumbersTakenAtTheSameTimeDiffer(t *testing.T) {
	s := create(t, embedtest.Start(t).Client(t))
	var taken sync.Map
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 200 {
				n := s.Link().Claim("a")
				if _, twice := taken.LoadOrStore(n, true); twice {
					t.Error("taken twice:", n)
				}
				taken.Delete(n)
				s.Link().Free("a", n)
			}
		})
	}
	users.Wait()
	require.Zero(t, s.Link().ClaimedPrefixes())
}

// FuzzClaim compares with a set of the numbers that are taken.
func FuzzClaim(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 7, 0})
	f.Add([]byte{0, 0, 5, 0, 8, 1, 1, 3})
	f.Add([]byte{0, 1, 2, 0, 1, 2, 0, 1, 2, 255, 254, 253, 252})
	s := create(f, embedtest.Start(f).Client(f))
	f.Fuzz(func(t *testing.T, steps []byte) {
		taken := map[string]map[int]bool{"a": {}, "b": {}}
		for _, step := range steps {
			prefix := []string{"a", "b"}[step&1]
			numbers := taken[prefix]
			if n := int(step >> 2); step&2 != 0 && numbers[n] {
				s.Link().Free(prefix, n)
				delete(numbers, n)
				continue
			}
			lowest := 0
			for numbers[lowest] {
				lowest++
			}
			require.Equal(t, lowest, s.Link().Claim(prefix))
			numbers[lowest] = true
		}
		for prefix, numbers := range taken {
			for n := range numbers {
				s.Link().Free(prefix, n)
			}
		}
		require.Zero(t, s.Link().ClaimedPrefixes(), "the table must not grow with the prefixes ever used")
	})
}
