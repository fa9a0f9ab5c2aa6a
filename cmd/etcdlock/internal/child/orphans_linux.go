package child

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Adopt makes orphans of this process's descendants its children, as those of process 1 are, and reaps them.
var Adopt = sync.OnceFunc(func() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() { // ends with the process
		for range ended {
			reapOrphans()
		}
	}()
})

func reapOrphans() {
	own.Lock()
	defer own.Unlock()
	children, _ := children()
	for _, pid := range children {
		if !own.pids[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// children returns the processes whose parent this one is.
func children() ([]int, error) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		return nil, os.ErrNotExist // a kernel without that file
	}
	var pids []int
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// others returns the processes of the group that have not ended, besides the command, which has.
func (c *Child) others() []int {
	// An orphan is a child of this process. So there is nobody else if the command is the only child.
	if children, err := children(); err == nil && len(children) == 1 && children[0] == c.PID() {
		return nil
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, path := range processes {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && pid != c.PID() && livesIn(text, c.PID()) {
			found = append(found, pid)
		}
	}
	return found
}

// livesIn reads a process's state, group and number of threads from /proc/<pid>/stat. A process whose
// first thread has ended looks like a zombie.
func livesIn(stat []byte, group int) bool {
	const state, pgrp, threads = 0, 2, 17 // counted from the name, which is in parentheses
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= threads || string(fields[pgrp]) != strconv.Itoa(group) {
		return false
	}
	return string(fields[state]) != "Z" && string(fields[state]) != "X" || string(fields[threads]) > "1" || len(fields[threads]) > 1
}
