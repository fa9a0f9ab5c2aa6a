package child

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// system is the job in which the group runs.
type system struct{ job windows.Handle }

// Adopt does nothing: there are no orphans.
func Adopt() {}

func (c *Child) start() error {
	files, closeFiles, err := c.spec.files()
	if err != nil {
		return err
	}
	defer closeFiles()
	job, err := newJob()
	if err != nil {
		return err
	}
	c.system.job = job
	c.process, err = os.StartProcess(c.spec.Path, c.spec.Args, &os.ProcAttr{
		Env:   c.spec.Env,
		Files: files,
	})
	if err != nil {
		_ = windows.CloseHandle(job)
		return err
	}
	if err := c.enterJob(); err != nil {
		_ = c.process.Kill()
		_, _ = c.process.Wait()
		_ = windows.CloseHandle(job)
		return err
	}
	return nil
}

// newJob returns a job that ends with its last handle, which is that of this process.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("creating a job: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, fmt.Errorf("limiting a job: %w", err)
	}
	return job, nil
}

// enterJob puts the command in the job. What it has started by then is not in it.
func (c *Child) enterJob() error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(c.PID()))
	if err != nil {
		return fmt.Errorf("opening the process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(process) }()
	if err := windows.AssignProcessToJobObject(c.system.job, process); err != nil {
		return fmt.Errorf("putting the process into a job: %w", err)
	}
	return nil
}

// follow returns when the command has ended, and ends what it has left behind.
func (c *Child) follow() {
	state, err := c.process.Wait() // the open handle keeps the number from being another's
	c.status = Status{Code: -1}
	if err == nil {
		c.status = Status{Code: state.ExitCode()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	_ = windows.CloseHandle(c.system.job)
}

// Resume does nothing: a console has no foreground group.
func (c *Child) Resume() {}

func (c *Child) wake() {}

// signal requires mu, and that the command has not ended. Only SIGKILL has an effect: an interrupt from the
// console reaches the command without this process.
func (c *Child) signal(sig syscall.Signal) {
	if sig == syscall.SIGKILL {
		_ = windows.TerminateJobObject(c.system.job, 1)
	}
}
