package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/etcdlock"
)

// Exit codes. Some are those of sysexits.h, 124 to 127 those of timeout(1) and the shell.
const (
	exitMistake       = 64
	exitUnavailable   = 69
	exitBusy          = 75
	exitRefused       = 77
	exitLost          = 124
	exitOther         = 125
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128
)

// exitError ends the tool with a code.
type exitError struct {
	code int
	err  error // nil: there is nothing to say
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// mistake is an error in the call.
func mistake(err error) error { return &exitError{code: exitMistake, err: err} }

func mistakef(format string, args ...any) error { return mistake(fmt.Errorf(format, args...)) }

// signalled is the end of a wait by a signal.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string { return fmt.Sprintf("ended by a signal: %v", s.sig) }

// notStarted is an error of finding or starting the command, with its code.
func notStarted(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &exitError{code: exitNotFound, err: err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		return &exitError{code: exitNotExecutable, err: err}
	}
	return &exitError{code: exitOther, err: err}
}

// message is what to say about err.
func message(err error) string {
	var exit *exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return ""
	}
	text := err.Error()
	switch exitCode(err) {
	case exitUnavailable:
		if noSpace(err) {
			return text + "; see etcdctl alarm list, and compact and defragment etcd"
		}
		return text + "; is etcd running, and are --endpoints right?"
	case exitRefused:
		return text + "; see --user, --password and the user's roles, which etcdlock doctor checks"
	}
	return text
}

// exitCode is that of err.
func exitCode(err error) int {
	var exit *exitError
	var sig signalled
	var size *etcdlock.SizeError
	var many *etcdlock.TooManyError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &sig):
		return exitSignal + int(sig.sig)
	case errors.Is(err, etcdlock.ErrInvalidName), errors.Is(err, etcdlock.ErrTooLarge),
		errors.As(err, &size), errors.As(err, &many):
		return exitMistake
	case errors.Is(err, etcdlock.ErrBusy):
		return exitBusy
	case refused(err):
		return exitRefused
	case unavailable(err):
		return exitUnavailable
	case errors.Is(err, etcdlock.ErrLost):
		return exitLost
	}
	return exitOther
}

// refused reports whether etcd does not let this user do it.
func refused(err error) bool {
	code, text := answer(err)
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	for _, refusal := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrAuthNotEnabled, rpctypes.ErrInvalidAuthMgmt,
	} {
		if strings.Contains(text, rpctypes.ErrorDesc(refusal)) {
			return true
		}
	}
	return false
}

// unavailable reports whether etcd did not answer, or cannot do it at the moment.
func unavailable(err error) bool {
	code, _ := answer(err)
	return errors.Is(err, context.DeadlineExceeded) || code == codes.Unavailable || code == codes.DeadlineExceeded || noSpace(err)
}

func noSpace(err error) bool {
	_, text := answer(err)
	return strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrNoSpace))
}

// answer returns what etcd or the connection to it said, if that is in err.
func answer(err error) (codes.Code, string) {
	var etcd rpctypes.EtcdError
	var grpc interface{ GRPCStatus() *status.Status }
	switch {
	case errors.As(err, &etcd):
		return etcd.Code(), etcd.Error()
	case errors.As(err, &grpc):
		return grpc.GRPCStatus().Code(), grpc.GRPCStatus().Message()
	}
	return codes.OK, ""
}
