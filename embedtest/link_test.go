package embedtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// short is how long a test gives a request that must not get through.
const short = 150 * time.Millisecond

func requireSilence(t *testing.T, client *clientv3.Client) {
	t.Helper()
	_, err := client.Get(within(t, short), "k")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestLinkIsTransparent(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, _ := c.Link(t)
	value := strings.Repeat("x", 1<<20)
	for i := range 5 {
		put(t, client, fmt.Sprint(i), value)
		require.Equal(t, value, get(t, client, fmt.Sprint(i)))
	}
}

func TestBlackholeSilencesOneClientUntilHealed(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	direct := c.Client(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	link.Blackhole()
	requireSilence(t, client)
	put(t, direct, "k", "w")
	link.Heal()
	require.Equal(t, "w", get(t, client, "k"))
}

func TestBlackholeSwallowsNewConnections(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link := c.Link(t)
	link.Blackhole()
	requireSilence(t, client)
	link.Heal()
	put(t, client, "k", "v")
}

func TestBlackholeKeepsTheConnection(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link := c.Link(t)
	watch := client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())
	<-watch
	created := c.Calls("Watch")
	link.Blackhole()
	put(t, c.Client(t), "k", "v")
	requireSilence(t, client)
	select {
	case answer := <-watch:
		require.Fail(t, "passed the black hole", "%v", answer)
	default:
	}
	link.Heal()
	require.Len(t, (<-watch).Events, 1)
	require.Equal(t, created, c.Calls("Watch"), "the stream was opened again")
}

func TestBlackholeOfOneMemberLeavesTheOthers(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithSize(3))
	for _, m := range c.Members() {
		client, link := c.Link(t)
		for _, other := range c.Members() {
			if other != m {
				link.Cut(other)
			}
		}
		put(t, client, "k", m.Name())
		link.Blackhole(m)
		requireSilence(t, client)
		link.Heal(m)
		require.Equal(t, m.Name(), get(t, client, "k"))
	}
}

func TestBytesSentIntoABlackholeArriveAfterHeal(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	link.Blackhole()
	before := c.Calls("Put")
	answered := later(within(t, patience), client, "k", "late")
	requireSilence(t, client)
	require.Equal(t, before, c.Calls("Put"))
	link.Heal()
	require.NoError(t, <-answered)
	require.Equal(t, before+1, c.Calls("Put"), "the request was sent again")
	require.Equal(t, "late", get(t, client, "k"))
}

func TestWritesIntoABlackholeDoNotBlock(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	link.Blackhole()
	answers := make(chan error, 3)
	for i := range cap(answers) {
		go func() {
			_, err := client.Put(within(t, patience), fmt.Sprint(i), strings.Repeat("x", 1<<20))
			answers <- err
		}()
	}
	requireSilence(t, client)
	link.Heal()
	for range cap(answers) {
		require.NoError(t, <-answers)
	}
}

func TestCutResetsAndRefusesUntilHealed(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	held := c.Hold("Put")
	answered := later(within(t, patience), client, "k", "w")
	require.NoError(t, held.Wait(within(t, patience)))
	link.Cut()
	require.ErrorContains(t, <-answered, "Unavailable")
	held.Heal()
	_, err := client.Put(within(t, short), "k", "x")
	require.Error(t, err)
	link.Heal()
	put(t, client, "k", "y")
}

func TestDelayMakesARoundTripTwiceAsLong(t *testing.T) {
	t.Parallel()
	const delay = 40 * time.Millisecond
	c := embedtest.Start(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	link.Delay(delay)
	begin := time.Now()
	put(t, client, "k", "w")
	require.GreaterOrEqual(t, time.Since(begin), 2*delay)
	link.Delay(time.Hour)
	requireSilence(t, client)
	link.Heal()
	require.Equal(t, "w", get(t, client, "k"))
}

func TestDelayKeepsThroughput(t *testing.T) {
	t.Parallel()
	const delay, requests = 50 * time.Millisecond, 100
	c := embedtest.Start(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	link.Delay(delay)
	begin := time.Now()
	answers := make(chan error, requests)
	for range requests {
		go func() {
			_, err := client.Get(within(t, patience), "k")
			answers <- err
		}()
	}
	for range requests {
		require.NoError(t, <-answers)
	}
	require.Less(t, time.Since(begin), requests*delay, "requests waited for each other")
}

func TestHealReleasesWhatIsDelayed(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link := c.Link(t)
	put(t, client, "k", "v")
	link.Delay(time.Hour)
	answered := later(within(t, patience), client, "k", "w")
	requireSilence(t, client)
	link.Heal()
	require.NoError(t, <-answered)
}

func TestLinkOutlivesARestart(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, _ := c.Link(t)
	put(t, client, "k", "v")
	require.NoError(t, c.Members()[0].Restart())
	require.Equal(t, "v", get(t, client, "k"))
}

func TestClosedLinkLeavesNothing(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link, err := c.NewLink()
	require.NoError(t, err)
	put(t, client, "k", "v")
	link.Blackhole()
	requireSilence(t, client)
	require.NoError(t, client.Close())
	link.Close()
	link.Close()
}

func TestClosingTheClusterClosesItsLinks(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client, link, err := c.NewLink()
	require.NoError(t, err)
	put(t, client, "k", "v")
	link.Blackhole()
	require.NoError(t, client.Close())
	closesSoon(t, c) // the check for goroutines left over does the rest
}

func TestLinkRefusesStrangers(t *testing.T) {
	t.Parallel()
	_, link := embedtest.Start(t).Link(t)
	stranger := embedtest.Start(t).Members()[0]
	require.Panics(t, func() { link.Cut(stranger) })
}
