package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"

	"github.com/etcdlock/locks/embedtest"
)

var withPrefix = clientv3.WithPrefix()

// project loads the file as docker compose does, with its profile.
func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithName("etcdlock"), cli.WithProfiles([]string{"tool"}))
	require.NoError(t, err)
	p, err := options.LoadProject(context.Background())
	require.NoError(t, err)
	return p
}

func TestComposeFileIsValid(t *testing.T) {
	p := project(t)
	require.Equal(t, 3, *p.Services["controller"].Deploy.Replicas)
	dockerfile, err := stages()
	require.NoError(t, err)
	for _, name := range []string{"controller", "shop", "etcdlock"} {
		build := p.Services[name].Build
		require.Contains(t, dockerfile, build.Target)
		context, err := filepath.Abs(root)
		require.NoError(t, err)
		require.Equal(t, context, build.Context)
		require.Equal(t, "deploy/Dockerfile", build.Dockerfile)
	}
	for name := range p.Services["etcdlock"].Environment {
		isVariable(t, name)
	}
	for name := range p.Services["exporter"].Environment {
		isVariable(t, name)
	}
	for _, name := range []string{"prometheus", "grafana"} {
		require.NotEmpty(t, p.Services[name].Volumes)
		for _, v := range p.Services[name].Volumes {
			_, err := os.Stat(v.Source)
			require.NoError(t, err)
		}
	}
}

// What Prometheus scrapes are services of the file, and the exporter is at its address.
func TestPrometheusOfTheComposeFileScrapesItsServices(t *testing.T) {
	p := project(t)
	text, err := os.ReadFile("../prometheus/prometheus.yml")
	require.NoError(t, err)
	var config struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
			DNS           []struct {
				Names []string
				Port  int
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	var targets []string
	for _, c := range config.ScrapeConfigs {
		for _, static := range c.StaticConfigs {
			targets = append(targets, static.Targets...)
		}
		for _, dns := range c.DNS {
			targets = append(targets, fmt.Sprintf("%s:%d", dns.Names[0], dns.Port))
		}
	}
	require.ElementsMatch(t, []string{"etcd-1:2379", "etcd-2:2379", "etcd-3:2379", "exporter:9479", "shop:8080"}, targets)
	for _, target := range targets {
		host, port, err := net.SplitHostPort(target)
		require.NoError(t, err)
		require.Contains(t, p.Services, host)
		if !strings.HasPrefix(host, "etcd-") {
			require.Contains(t, p.Services[host].Command, ":"+port)
		}
	}
}

func TestExporterOfTheComposeFileShowsLocks(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	_, err := c.Client(t).Put(within(t), "etcdlock/orders/1f", "me")
	require.NoError(t, err)
	serves(t, c, theTool(t), "exporter", ":9479", `etcdlock_queue_holders{lock_name="orders"} 1`)
}

func TestShopOfTheComposeFileIsWatched(t *testing.T) {
	t.Parallel()
	binary, err := buildImage("build-shop", "shop")
	require.NoError(t, err)
	serves(t, embedtest.Start(t), binary, "shop", ":8080", `etcdlock_election_leading{lock_name="leader"} 1`)
}

// serves runs a service of the compose file at another port until its metrics have a line, and then ends it.
func serves(t *testing.T, c *embedtest.Cluster, binary, service, port, line string) {
	t.Helper()
	address := ownAddress()
	argv := []string{binary} // the image's entrypoint
	for _, arg := range project(t).Services[service].Command {
		switch {
		case arg == port:
			arg = address
		case strings.HasPrefix(arg, "etcd-1:2379,"):
			arg = strings.Join(c.Endpoints(), ",")
		}
		argv = append(argv, arg)
	}
	p := run(t, []string{endpoints(c.Endpoints())}, argv...)
	eventually(t, line, func() bool {
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		return err == nil && strings.Contains(string(text), "\n"+line+"\n")
	})
	p.terminate()
	require.Zero(t, p.code())
}

func TestMembersOfTheComposeFileFitTogether(t *testing.T) {
	p := project(t)
	var peers []string
	for i := range 3 {
		name := fmt.Sprintf("etcd-%d", i+1)
		set := p.Services[name].Environment.ToMapping()
		require.Equal(t, name, set["ETCD_NAME"])
		require.Equal(t, "http://"+name+":2379", set["ETCD_ADVERTISE_CLIENT_URLS"])
		require.Equal(t, "http://"+name+":2380", set["ETCD_INITIAL_ADVERTISE_PEER_URLS"])
		require.Equal(t, "1h", set["ETCD_AUTO_COMPACTION_RETENTION"])
		require.Equal(t, set["ETCD_DATA_DIR"], p.Services[name].Volumes[0].Target)
		peers = append(peers, name+"=http://"+name+":2380")
	}
	require.Equal(t, strings.Join(peers, ","), p.Services["etcd-1"].Environment.ToMapping()["ETCD_INITIAL_CLUSTER"])
}

func TestSettingsOfTheMembersAreEtcds(t *testing.T) {
	help, err := exec.Command("etcd", "--help").CombinedOutput()
	if err != nil {
		t.Skipf("no etcd in the PATH (Debian: apt-get install etcd-server): %v", err)
	}
	for name := range project(t).Services["etcd-1"].Environment {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "ETCD_"), "_", "-"))
		require.Contains(t, string(help), "--"+flag+" ", name)
	}
}

// A docker of an older kind may read the file differently.
func TestComposeOfThisMachineAcceptsTheFile(t *testing.T) {
	for _, command := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.Command(command[0], append(command[1:], "version")...).Run() != nil {
			continue
		}
		out, err := exec.Command(command[0], append(command[1:], "-f", "../compose.yaml", "config", "-q")...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Empty(t, string(out))
		return
	}
	t.Skip("no docker compose here (Debian: apt-get install docker-compose)")
}

func TestReplicasOfTheComposeFileDoTheWork(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(scratch, "controller")
	build := exec.Command("go", "build", "-o", binary, "./examples/controller")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	c := embedtest.Start(t, embedtest.WithSize(3))
	client := c.Client(t)
	argv := []string{binary, "replica"} // the image's entrypoint
	for _, arg := range project(t).Services["controller"].Command {
		if strings.HasPrefix(arg, "etcd-1:2379,") {
			arg = strings.Join(c.Endpoints(), ",")
		}
		argv = append(argv, arg)
	}
	var replicas []*process
	for range 3 {
		replicas = append(replicas, run(t, nil, argv...))
	}
	for _, size := range []int{3, 5} {
		_, err := client.Put(within(t), "controller/desired", fmt.Sprint(size))
		require.NoError(t, err)
		var fleet struct {
			Size int
			By   string
		}
		eventually(t, "a fleet", func() bool {
			answer, err := client.Get(within(t), "controller/actual")
			return err == nil && len(answer.Kvs) == 1 && json.Unmarshal(answer.Kvs[0].Value, &fleet) == nil && fleet.Size == size
		})
		for i, r := range replicas {
			if strings.HasSuffix(fleet.By, fmt.Sprintf("-%d", r.cmd.Process.Pid)) {
				r.terminate()
				require.Zero(t, r.code())
				replicas = append(replicas[:i], replicas[i+1:]...)
				break
			}
		}
		require.NotEmpty(t, replicas)
	}
	require.Len(t, replicas, 1, "two have led, and ended")
}
