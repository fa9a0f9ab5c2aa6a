//go:build race

package tusdlock_test

func init() { raceDetector = true }
