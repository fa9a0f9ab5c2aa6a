//go:build !linux

package proof_test

func runAsChild() bool { return false }
