package certmagiclock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	certmagiclock "github.com/etcdlock/locks/adapters/certmagic"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// certmagic's own storage is the reference: both get the same calls, and answer alike.
func TestTheStorageAnswersAsCertmagicsOwn(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	reference := &certmagic.FileStorage{Path: t.TempDir()}
	ours := newStorage(t, embedtest.Start(t).Client(t))
	ctx := within(t)
	// A file system cannot have a file and a directory of one name. So files have other names than directories.
	directory := func() string {
		parts := make([]string, random.IntN(4))
		for i := range parts {
			parts[i] = []string{"certificates", "acme", "a-b", "a.b"}[random.IntN(4)]
		}
		return strings.Join(parts, "/")
	}
	anything := func() string {
		dir := directory()
		if random.IntN(2) == 0 {
			return dir
		}
		return strings.Trim(dir+"/"+[]string{"x.crt", "x.key", "a-b.json", "ä"}[random.IntN(4)], "/")
	}
	both := func(do func(s certmagic.Storage) string) string {
		want, have := do(reference), do(ours)
		require.Equal(t, want, have)
		return want
	}
	for range 1000 {
		key, recursive := anything(), random.IntN(2) == 0
		switch call := random.IntN(7); call {
		case 0, 1:
			key = strings.Trim(directory()+"/file", "/")
			value := bytes.Repeat([]byte{'\n'}, random.IntN(5))
			both(func(s certmagic.Storage) string { return result("", s.Store(ctx, key, value)) })
		case 2:
			if random.IntN(10) > 0 || key == "" {
				continue
			}
			both(func(s certmagic.Storage) string { return result("", s.Delete(ctx, key)) })
			// A directory of the file system remains when it is empty.
			for dir := key; strings.Contains(dir, "/"); {
				dir = dir[:strings.LastIndexByte(dir, '/')]
				if below, err := ours.List(ctx, dir, true); err != nil || len(below) == 0 {
					require.NoError(t, reference.Delete(ctx, dir))
				}
			}
		case 3:
			both(func(s certmagic.Storage) string {
				value, err := s.Load(ctx, key)
				if s == certmagic.Storage(reference) && err != nil {
					err = fs.ErrNotExist // of a directory
				}
				return result(fmt.Sprintf("%q", value), err)
			})
		case 4:
			if key != "" {
				both(func(s certmagic.Storage) string { return fmt.Sprint(s.Exists(ctx, key)) })
			}
		case 5:
			both(func(s certmagic.Storage) string {
				keys, err := s.List(ctx, key, recursive)
				slices.Sort(keys)
				return result(strings.Join(keys, " "), err)
			})
		case 6:
			if key == "" {
				continue
			}
			both(func(s certmagic.Storage) string {
				info, err := s.Stat(ctx, key)
				if !info.IsTerminal {
					info.Size = 0 // of a directory it depends on the file system
				}
				return result(fmt.Sprint(info.Key, info.Size, info.IsTerminal), err)
			})
		}
	}
}

func result(value string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case err != nil:
		return "error " + err.Error()
	}
	return value
}

// These are the tests of certmagic's FileStorage, in its order.
func TestCertmagicsOwnTestsOfAStorage(t *testing.T) {
	t.Parallel()
	s := newStorage(t, embedtest.Start(t).Client(t))
	t.Run("StoreLoad", func(t *testing.T) {
		require.NoError(t, s.Store(t.Context(), "foo", []byte("bar")))
		value, err := s.Load(t.Context(), "foo")
		require.NoError(t, err)
		require.Equal(t, "bar", string(value))
	})
	t.Run("StoreLoadRace", func(t *testing.T) {
		a, b := bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 1<<20)
		require.NoError(t, s.Store(t.Context(), "foo", a))
		done := make(chan error, 1)
		go func() { done <- s.Store(context.Background(), "foo", b) }()
		value, err := s.Load(t.Context(), "foo")
		require.NoError(t, <-done)
		require.NoError(t, err)
		require.Len(t, value, 1<<20)
	})
	t.Run("WriteLock", func(t *testing.T) {
		soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.NoError(t, s.Lock(t.Context(), "foo"))
		require.Error(t, s.Lock(soon, "foo"))
		require.NoError(t, s.Unlock(soon, "foo"))
		require.NoError(t, s.Lock(t.Context(), "foo"))
		require.NoError(t, s.Unlock(t.Context(), "foo"))
	})
}

func TestAValueKnowsWhenItWasStored(t *testing.T) {
	t.Parallel()
	s := newStorage(t, embedtest.Start(t).Client(t))
	before := time.Now()
	require.NoError(t, s.Store(within(t), "dir/key", []byte("value")))
	info, err := s.Stat(within(t), "dir/key")
	require.NoError(t, err)
	require.WithinRange(t, info.Modified, before, time.Now())
	require.EqualValues(t, 5, info.Size)
}

func TestALargeDirectoryIsListedWhole(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	s := newStorage(t, client)
	const many = 2500
	for i := 0; i < many; i += 100 {
		var puts []clientv3.Op
		for j := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("certmagic/certs/%d/%04d", i/1250, i+j), ""))
		}
		_, err := client.Txn(within(t)).Then(puts...).Commit()
		require.NoError(t, err)
	}
	require.NoError(t, s.Store(within(t), "certs/z", nil))
	keys, err := s.List(within(t), "certs", true)
	require.NoError(t, err)
	require.Len(t, keys, many+2+1)
	keys, err = s.List(within(t), "certs", false)
	require.NoError(t, err)
	require.Equal(t, []string{"certs/0", "certs/1", "certs/z"}, keys)
	require.NoError(t, s.Delete(within(t), "certs"))
	require.False(t, s.Exists(within(t), "certs"))
}

func TestWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := newStorage(t, embedtest.Start(t).Client(t))
	require.ErrorIs(t, s.Store(within(t), "large", make([]byte, 1<<20+1)), etcdlock.ErrTooLarge)
	require.ErrorIs(t, s.Store(within(t), "/", nil), fs.ErrInvalid)
	require.NoError(t, s.Store(within(t), "../../outside", nil))
	keys, err := s.List(within(t), "", true)
	require.NoError(t, err)
	require.Equal(t, []string{"outside"}, keys)
}

func TestARefusalIsReturnedAtOnce(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("secret", embedtest.User{Name: "nobody", Password: "secret"}))
	client := cluster.ClientAs(t, "nobody")
	s := certmagiclock.NewStorage(client, keep(t, client), "certmagic")
	for _, err := range []error{
		s.Store(within(t), "key", nil),
		s.Delete(within(t), "key"),
		errorOf(s.Load(within(t), "key")),
		errorOf(s.List(within(t), "key", true)),
		errorOf(s.Stat(within(t), "key")),
	} {
		require.ErrorContains(t, err, "permission denied")
	}
	require.False(t, s.Exists(within(t), "key"))
}

func errorOf[T any](_ T, err error) error { return err }

func TestCallsSurviveAMemberThatIsDown(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newStorage(t, cluster.Client(t))
	cluster.Leader().Kill()
	stored := make(chan error, 1)
	go func() { stored <- s.Store(context.Background(), "key", []byte("value")) }()
	require.NoError(t, cluster.Members()[0].Restart())
	require.NoError(t, <-stored)

	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	defer cluster.LoseReply("Range").Heal()
	_, err := s.List(ended, "", true)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A request that is under way for longer than an attempt lasts is repeated. It arrives when another process has stored
// a value.
func TestALateRequestReplacesNoLaterValue(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(s certmagic.Storage) error{
		"store":  func(s certmagic.Storage) error { return s.Store(context.Background(), "dir/key", []byte("old")) },
		"delete": func(s certmagic.Storage) error { return s.Delete(context.Background(), "dir") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			a, b := newStorage(t, cluster.Client(t)), newStorage(t, cluster.Client(t))
			require.NoError(t, a.Store(within(t), "dir/key", []byte("oldest")))
			late := cluster.Hold("Txn", embedtest.Once())
			require.NoError(t, call(a))
			require.NoError(t, b.Store(within(t), "dir/key", []byte("new")))
			applied := cluster.AppliedIndex()
			late.Heal()
			require.Eventually(t, func() bool { return cluster.AppliedIndex() > applied }, time.Minute, time.Millisecond)
			value, err := b.Load(within(t), "dir/key")
			require.NoError(t, err)
			require.Equal(t, "new", string(value))
		})
	}
}
