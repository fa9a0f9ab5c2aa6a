package fairqueue

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMode(t *testing.T) {
	const s = space("a/b/")
	for key, want := range map[string]Mode{
		"a/b/x1-0":      Exclusive,
		"a/b/s1-0":      Shared,
		"a/b/694d":      Exclusive,
		"a/b/":          Exclusive, // etcd's own tools wait for it, too
		"a/b/something": Shared,
	} {
		mode, ok := s.mode(key)
		require.True(t, ok, key)
		require.Equal(t, want, mode, key)
	}
	for _, key := range []string{"a/b/c/x1-0", "a/b/c/", "a/b//", "a/b", "a/bc", "a/b0", "a/x1-0", ""} {
		_, ok := s.mode(key)
		require.False(t, ok, key)
	}
	require.Equal(t, "shared", Shared.String())
	require.Equal(t, "exclusive", Exclusive.String())
}

func (s span) holds(key string) bool { return key >= s.first && key < s.end }

// The name of a ticket tells its mode, lies where it is looked for, and tells
// nothing in any other queue.
func FuzzKeyTellsItsMode(f *testing.F) {
	f.Add("etcdlock/name", "etcdlock", int64(0x694d), 0, true)
	f.Add("a", "a/b", int64(1), 17, false)
	f.Add("", "s", int64(-1), 1<<40, true)
	f.Add("q\xff", "q\xff/", int64(1)<<62, 3, false)
	f.Fuzz(func(t *testing.T, prefix, other string, lease int64, slot int, shared bool) {
		m := Exclusive
		if shared {
			m = Shared
		}
		s := space(prefix + "/")
		key := s.key(m, clientv3.LeaseID(lease), slot, 0)
		mode, ok := s.mode(key)
		require.True(t, ok)
		require.Equal(t, m, mode)
		require.True(t, s.all().holds(key))

		for _, asker := range []Mode{Exclusive, Shared} {
			spans := 0
			for _, span := range s.blocking(asker) {
				if span.holds(key) {
					spans++
				}
			}
			want := 0
			if s.blocks(entry{key: key}, asker) {
				want = 1
			}
			require.Equal(t, want, spans, "spans of %v", asker)
		}
		if other != prefix {
			_, ok := space(other + "/").mode(key)
			require.False(t, ok, "%q is in two queues", key)
		}
	})
}

// Whatever stands at a key, foreign or not, the spans find what blocks and nothing
// else that is directly in the queue.
func FuzzSpansHoldWhatBlocks(f *testing.F) {
	for _, name := range []string{"x1-0", "s1-0", "r\xff", "t", "s", "", "694d", "sub/x1", "\xff", "s/"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		const s = space("q/")
		key := string(s) + name
		for _, asker := range []Mode{Exclusive, Shared} {
			found := false
			for _, span := range s.blocking(asker) {
				found = found || span.holds(key)
			}
			if s.blocks(entry{key: key}, asker) {
				require.True(t, found)
			} else if !strings.Contains(name, "/") {
				require.False(t, found)
			}
		}
	})
}

func FuzzParseOwner(f *testing.F) {
	f.Add([]byte(`{"host":"h","pid":7,"program":"p","label":"l","since":"2030-01-02T03:04:05.678Z"}`), "label")
	f.Add([]byte(`{"pid":"seven"}`), "")
	f.Add([]byte(`null`), "\xff")
	f.Add([]byte(``), `"}`)
	f.Add([]byte(`{"host":"h","since":"yesterday"}`), "\u2028")
	f.Fuzz(func(t *testing.T, value []byte, label string) {
		_ = parseOwner(value) // does not panic, whatever strangers wrote

		owner := thisProcess(label)
		now := time.Now()
		read := parseOwner([]byte(owner.valueAt(now)))
		require.WithinDuration(t, now, read.Since, time.Millisecond)
		read.Since = time.Time{}
		if utf8.ValidString(label) {
			require.Equal(t, owner, read)
		}
	})
}

func TestParseOwnerTakesNothingFromHalfOfAnAnswer(t *testing.T) {
	require.Zero(t, parseOwner([]byte(`{"host":"h","pid":"seven"}`)))
	require.Zero(t, parseOwner([]byte(`{"host":"h"`)))
	require.Equal(t, Owner{Host: "h"}, parseOwner([]byte(`{"host":"h","since":"0001-01-01T00:00:00Z","more":1}`)))
}

// How a process is called is not for its lock to refuse.
func TestLongNamesOfAProcessAreCut(t *testing.T) {
	t.Parallel()
	o := processOwner(strings.Repeat("h", 300), "/bin/"+strings.Repeat("ü", 40), "label")
	require.Equal(t, strings.Repeat("h", 255), o.Host)
	require.Equal(t, strings.Repeat("ü", 32), o.Program)
	o = processOwner("h", strings.Repeat("p", 63)+"ü", "label")
	require.Equal(t, strings.Repeat("p", 63), o.Program, "no half of a letter")
	require.True(t, utf8.ValidString(o.Program))
	require.Equal(t, "label", o.Label)

	worst := processOwner(strings.Repeat("h", 300), strings.Repeat("\x01", 100), strings.Repeat("\x01", longestLabel))
	require.Less(t, len(worst.valueAt(time.Now())), 4<<10)
}

func TestWhatOwns(t *testing.T) {
	writer, reader := Entry{Mode: Exclusive}, Entry{Mode: Shared}
	upgradeable := Entry{Mode: Upgradeable}
	permits := func(weight int64) Entry { return Entry{Mode: permit, Weight: weight} }
	for name, tt := range map[string]struct {
		entries []Entry
		size    int64
		want    int
	}{
		"none":                      {nil, 0, 0},
		"a writer":                  {[]Entry{writer, reader, writer}, 0, 1},
		"readers":                   {[]Entry{reader, reader, writer, reader}, 0, 2},
		"an upgradeable reader":     {[]Entry{reader, upgradeable, reader, writer, reader}, 0, 3},
		"two of them":               {[]Entry{upgradeable, upgradeable, reader, writer}, 0, 2},
		"one behind a writer":       {[]Entry{writer, upgradeable, reader}, 0, 1},
		"permits within the size":   {[]Entry{permits(2), permits(1), permits(1)}, 3, 2},
		"a heavy one in the way":    {[]Entry{permits(2), permits(2), permits(1)}, 3, 1},
		"a writer takes all":        {[]Entry{writer, permits(1)}, 3, 1},
		"a writer after permits":    {[]Entry{permits(1), writer, permits(1)}, 3, 1},
		"permits without any size":  {[]Entry{permits(1), permits(1)}, 0, 1},
		"more than any size can be": {[]Entry{permits(math.MaxInt64), permits(math.MaxInt64)}, math.MaxInt64, 1},
	} {
		own(tt.entries, tt.size)
		owns := slices.DeleteFunc(tt.entries, func(e Entry) bool { return !e.Owns })
		require.Len(t, owns, tt.want, name)
	}
}
