package embedtest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/embedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what must happen soon; no test depends on how soon.
const patience = 20 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	_, err := client.Put(within(t, patience), key, value)
	require.NoError(t, err)
}

func get(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	answer, err := client.Get(within(t, patience), key)
	require.NoError(t, err)
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

func TestEverySizeServes(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c := embedtest.Start(t, embedtest.WithSize(size))
			put(t, c.Client(t), "k", "v")
			require.Len(t, c.Endpoints(), size)
			for _, m := range c.Members() {
				require.Equal(t, "v", get(t, m.Client(t), "k"))
			}
			require.NotNil(t, c.Leader())
		})
	}
}

func BenchmarkStart(b *testing.B) {
	for _, size := range []int{1, 3} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			var starts, closes []time.Duration
			for b.Loop() {
				begin := time.Now()
				c, err := embedtest.Open(embedtest.WithSize(size))
				require.NoError(b, err)
				client, err := c.NewClient()
				require.NoError(b, err)
				_, err = client.Put(context.Background(), "k", "v")
				require.NoError(b, err)
				starts = append(starts, time.Since(begin))
				require.NoError(b, client.Close())
				begin = time.Now()
				require.NoError(b, c.Close())
				closes = append(closes, time.Since(begin))
			}
			b.ReportMetric(milliseconds(median(starts)), "start-ms")
			b.ReportMetric(milliseconds(median(closes)), "close-ms")
		})
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
