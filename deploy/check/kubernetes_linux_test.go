package check

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcdlock/locks/embedtest"
)

// manifests decodes the file, and refuses fields that are unknown or given twice.
func manifests(t *testing.T) (appsv1.Deployment, policyv1.PodDisruptionBudget) {
	t.Helper()
	text, err := os.ReadFile("../kubernetes/scheduler.yaml")
	require.NoError(t, err)
	parts := bytes.Split(text, []byte("\n---\n"))
	require.Len(t, parts, 2)
	var deployment appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict(parts[0], &deployment))
	var budget policyv1.PodDisruptionBudget
	require.NoError(t, yaml.UnmarshalStrict(parts[1], &budget))
	require.Equal(t, "apps/v1 Deployment", deployment.APIVersion+" "+deployment.Kind)
	require.Equal(t, "policy/v1 PodDisruptionBudget", budget.APIVersion+" "+budget.Kind)
	return deployment, budget
}

func TestDecodingIsStrict(t *testing.T) {
	require.ErrorContains(t, yaml.UnmarshalStrict([]byte("kind: Deployment\nspec: {replcas: 3}\n"), &appsv1.Deployment{}), "replcas")
}

func TestDeploymentKeepsItsRules(t *testing.T) {
	d, budget := manifests(t)
	pod := d.Spec.Template
	require.EqualValues(t, 3, *d.Spec.Replicas)
	require.Equal(t, 1, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
	require.Equal(t, pod.Labels, d.Spec.Selector.MatchLabels)
	require.Equal(t, pod.Labels, budget.Spec.Selector.MatchLabels)
	spread := pod.Spec.TopologySpreadConstraints[0]
	require.Equal(t, corev1.LabelHostname, spread.TopologyKey)
	require.Equal(t, pod.Labels, spread.LabelSelector.MatchLabels)

	elect := sidecar(t, d)
	require.Equal(t, corev1.ContainerRestartPolicyAlways, *elect.RestartPolicy, "it ends after the scheduler")
	require.Nil(t, elect.ReadinessProbe)
	require.Equal(t, elect.Ports[0].Name, elect.LivenessProbe.HTTPGet.Port.StrVal)
	require.Contains(t, elect.Args, ":4040")
	require.EqualValues(t, 4040, elect.Ports[0].ContainerPort)

	require.Len(t, pod.Spec.Volumes, 1)
	require.NotNil(t, pod.Spec.Volumes[0].Secret)
	mount := elect.VolumeMounts[0]
	require.Equal(t, pod.Spec.Volumes[0].Name, mount.Name)
	for _, e := range elect.Env {
		if path, ok := strings.CutPrefix(e.Value, mount.MountPath+"/"); ok {
			require.Contains(t, []string{"ca.crt", "tls.crt", "tls.key"}, path)
		}
		if e.ValueFrom == nil {
			isVariable(t, e.Name)
		}
	}
}

func sidecar(t *testing.T, d appsv1.Deployment) corev1.Container {
	t.Helper()
	require.Len(t, d.Spec.Template.Spec.InitContainers, 1)
	return d.Spec.Template.Spec.InitContainers[0]
}

// candidate is the sidecar of a pod, as a process.
type candidate struct {
	*process
	url string
}

// inPod runs the sidecar of a pod. It has an address of its own, and an etcd without certificates.
func inPod(t *testing.T, c *embedtest.Cluster, d appsv1.Deployment, pod string) candidate {
	t.Helper()
	address := ownAddress()
	argv := []string{theTool(t)}
	elect := sidecar(t, d)
	require.Equal(t, "metadata.name", elect.Env[0].ValueFrom.FieldRef.FieldPath)
	for _, arg := range elect.Args {
		arg = strings.ReplaceAll(arg, "$("+elect.Env[0].Name+")", pod)
		if arg == ":4040" {
			arg = address
		}
		argv = append(argv, arg)
	}
	return candidate{run(t, []string{endpoints(c.Endpoints())}, argv...), "http://" + address}
}

// leader asks for the leader, as the scheduler does.
func (c candidate) leader() (name string, self bool) {
	answer, err := http.Get(c.url + "/")
	if err != nil {
		return "", false
	}
	defer func() { _ = answer.Body.Close() }()
	var l struct {
		Name string
		Self bool
	}
	if json.NewDecoder(answer.Body).Decode(&l) != nil {
		return "", false
	}
	return l.Name, l.Self
}

func (c candidate) healthy(t *testing.T) {
	t.Helper()
	answer, err := http.Get(c.url + "/healthz")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// agreed waits until all candidates name the same leader, which knows that it leads, and returns it.
func agreed(t *testing.T, pods map[string]candidate) (leader string) {
	t.Helper()
	eventually(t, "a leader", func() bool {
		leader = ""
		for pod, c := range pods {
			name, self := c.leader()
			if _, ok := pods[name]; !ok || leader != "" && name != leader || self != (name == pod) {
				return false
			}
			leader = name
		}
		return true
	})
	return leader
}

func TestRolloutMovesTheLead(t *testing.T) {
	t.Parallel()
	d, _ := manifests(t)
	c := embedtest.Start(t)
	pods := map[string]candidate{}
	for _, pod := range []string{"scheduler-a", "scheduler-b", "scheduler-c"} {
		pods[pod] = inPod(t, c, d, pod)
	}
	for _, replacement := range []string{"scheduler-d", "scheduler-e"} {
		leader := agreed(t, pods)
		pods[leader].terminate()
		require.Zero(t, pods[leader].code())
		delete(pods, leader)
		require.NotEqual(t, leader, agreed(t, pods))
		pods[replacement] = inPod(t, c, d, replacement)
		agreed(t, pods)
		for _, p := range pods {
			p.healthy(t) // whether it leads or not
		}
	}
}
