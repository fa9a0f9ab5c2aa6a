//go:build !race

package etcdlock_test

const raceDetector = false
