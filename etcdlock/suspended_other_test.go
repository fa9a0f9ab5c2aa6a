//go:build !unix

package etcdlock_test

const childRole = "ETCDLOCK_TEST_ROLE"

func child(string) int { return 1 }
