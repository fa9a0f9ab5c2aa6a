package stage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/examples/internal/stagetest"
)

var program = stage.Program{Name: "greeting", Story: story, Roles: map[string]stage.Act{"guest": guest}}

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func story(ctx context.Context, e *stage.Etcd) error {
	polite, err := e.Start(ctx, "polite", "guest", "hello")
	if err != nil {
		return err
	}
	e.Printf("%s: %s\n", polite.Name, <-polite.Lines)
	stays, err := e.Start(ctx, "stays", "guest", "")
	if err != nil {
		return err
	}
	if err := e.Meet(ctx, "door", 3); err != nil {
		return err
	}
	e.Printf("%s: %s\n", stays.Name, <-stays.Lines)
	polite.Leave()
	if err := errors.Join(polite.Wait(), stays.Kill()); err != nil {
		return err
	}
	if err := stays.Wait(); err == nil {
		return errors.New("a killed process ended well")
	}
	answer, err := e.Client.Get(ctx, e.Prefix+"guests/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	e.Say("%d guests", answer.Count)
	return nil
}

func guest(ctx context.Context, e *stage.Etcd) error {
	var word string
	if err := e.Job(&word); err != nil {
		return err
	}
	if _, err := e.Client.Put(ctx, fmt.Sprintf("%sguests/%q", e.Prefix, word), ""); err != nil {
		return err
	}
	e.Printf("%q\n", word)
	if err := e.Meet(ctx, "door", 3); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestAStoryIsPlayedByProcesses(t *testing.T) {
	out := stagetest.Play(t)
	require.Contains(t, out, "polite: \"hello\"\nstays: \"\"\n")
	require.Regexp(t, `\d\.\d\ds  2 guests`, out)
}

func TestAStoryThatHarmsItsClusterTakesNobodysElse(t *testing.T) {
	p := program
	p.OnlyEmbedded = true
	var out, errOut bytes.Buffer
	require.Equal(t, 2, p.Run([]string{"-endpoints", "localhost:2379"}, &out, &errOut))
	require.Contains(t, errOut.String(), "embedded one only")
	require.Empty(t, out.String())
}
