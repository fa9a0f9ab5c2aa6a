//go:build !linux

package session

func systemClock() clock { return monotonicClock() }
