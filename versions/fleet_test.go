package versions

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var fleetTime = flag.Duration("fleet", 5*time.Second, "how long each fleet of old and new processes runs")

// killEvery leaves time after the TTL of what a killed process held.
const killEvery = 6 * time.Second

// older are commits of this library: the first that had a RWMutex, one halfway, and the last that had no upgrades.
var older = map[string]string{
	"first":   "7bf6053",
	"halfway": "c3e4cc4",
	"last":    "33734ea",
}

// referee is told what processes believe. A belief counts if its hold was not lost by its end.
type referee struct {
	mu       sync.Mutex
	beliefs  map[string]*belief
	together map[string]int // how often beliefs of two modes overlapped, "old s, new u"
	highest  int64          // token of a belief to be alone
	faults   []string
}

type belief struct {
	process, mode string
	token         int64
	against       []*belief // it began while these held, which it excludes
	ended, held   bool
}

// String is mode and age of the process, and what it holds.
func (b *belief) String() string { return fmt.Sprintf("%s %s %d", b.process, b.mode, b.token) }

func excludes(a, b string) bool {
	return a == "x" || b == "x" || a == "a" || b == "a" || a == "u" && b == "u"
}

func (r *referee) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := request.URL.Query()
	token, _ := strconv.ParseInt(q.Get("token"), 10, 64)
	held := q.Get("held") == "true"
	key := q.Get("process") + " " + q.Get("token")
	switch q.Get("what") {
	case "begin":
		b := &belief{process: q.Get("process"), mode: q.Get("mode"), token: token}
		for _, other := range r.beliefs {
			r.together[pair(b, other)]++
			if excludes(b.mode, other.mode) {
				b.against = append(b.against, other)
				other.against = append(other.against, b)
			}
		}
		r.beliefs[key] = b
	case "end":
		r.end(key, held)
	case "stuck":
		r.faults = append(r.faults, "an upgrade waited for ever: "+key)
	}
}

func pair(a, b *belief) string {
	one, other := strings.Fields(a.process)[0]+" "+a.mode, strings.Fields(b.process)[0]+" "+b.mode
	return min(one, other) + ", " + max(one, other)
}

// end requires mu.
func (r *referee) end(key string, held bool) {
	b := r.beliefs[key]
	if b == nil {
		return // of a process that was killed
	}
	delete(r.beliefs, key)
	b.ended, b.held = true, held
	for _, other := range b.against {
		if b.held && other.ended && other.held {
			r.faults = append(r.faults, fmt.Sprintf("%v together with %v", b, other))
		}
	}
	if held && (b.mode == "x" || b.mode == "a") {
		if r.highest = max(r.highest, b.token); b.token < r.highest {
			r.faults = append(r.faults, fmt.Sprintf("%v after %d", b, r.highest))
		}
	}
	r.together[strings.Fields(b.process)[0]+" "+b.mode]++
}

// killed ends what a process believes, before it is killed.
func (r *referee) killed(process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, b := range r.beliefs {
		if b.process == process {
			r.end(key, false)
		}
	}
}

// buildFleet builds the program of a fleet's processes from a commit, or from what is here.
func buildFleet(t *testing.T, commit string) string {
	t.Helper()
	into := filepath.Join(t.TempDir(), "member")
	if commit == "" {
		runIn(t, ".", "go", "build", "-buildvcs=false", "-tags=upgrades", "-o", into, "./testdata/fleet")
		return into
	}
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the commit %s is not in the history that is here: %v %s", commit, err, out)
	}
	tree := t.TempDir()
	runIn(t, "..", "sh", "-c", "git archive "+commit+" | tar -x -C "+tree)
	runIn(t, ".", "cp", "-r", "testdata/fleet", tree)
	runIn(t, tree, "go", "build", "-buildvcs=false", "-o", into, "./fleet")
	return into
}

func runIn(t *testing.T, dir string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// fleetProcess is a running one.
type fleetProcess struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

func startFleetProcess(t *testing.T, e *etcd, program, name, lock, referee string, seed uint64) *fleetProcess {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(environment(), "FLEET_ENDPOINT="+e.endpoint, "FLEET_NAME="+lock, "FLEET_REFEREE="+referee,
		"FLEET_PROCESS="+strings.ReplaceAll(name, " ", "+"), "FLEET_SEED="+strconv.FormatUint(seed, 10))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	endWithUs(cmd)
	require.NoError(t, cmd.Start())
	return &fleetProcess{name, cmd, stdin}
}

// Processes of this commit and of an older one share a RWMutex, with upgrades and downgrades, and some are killed.
func TestOldAndNewProcessesShareALockThatIsUpgraded(t *testing.T) {
	e := releases[len(releases)-1].start(t)
	fresh := buildFleet(t, "")
	for title, commit := range older {
		t.Run(title, func(t *testing.T) {
			old := buildFleet(t, commit)
			r := &referee{beliefs: map[string]*belief{}, together: map[string]int{}}
			server := httptest.NewServer(r)
			defer server.Close()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 2))
			started := 0
			start := func(age string) *fleetProcess {
				program := map[string]string{"old": old, "new": fresh}[age]
				started++
				return startFleetProcess(t, e, program, fmt.Sprint(age, " ", started), name(t), server.URL, random.Uint64())
			}
			fleet := []*fleetProcess{start("old"), start("new"), start("old"), start("new")}
			for left := *fleetTime; left > 0; left -= killEvery {
				time.Sleep(min(left, killEvery))
				i := random.IntN(len(fleet))
				r.killed(fleet[i].name)
				_ = fleet[i].cmd.Process.Kill()
				_ = fleet[i].cmd.Wait()
				fleet[i] = start(strings.Fields(fleet[i].name)[0])
			}
			for _, p := range fleet {
				_ = p.stdin.Close()
			}
			for _, p := range fleet {
				require.NoError(t, p.cmd.Wait(), p.name)
			}
			t.Logf("%v", r.together)
			require.Empty(t, r.faults)
			for _, seen := range []string{"old s", "old x", "old u", "new s", "new x", "new u", "new a", "new u, old s"} {
				require.Positive(t, r.together[seen], seen)
			}
			eventually(t, "nothing is left", func() bool { return count(t, e.client(t), inNamespace(name(t))) == 0 })
		})
	}
}
