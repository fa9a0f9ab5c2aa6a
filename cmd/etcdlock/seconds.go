package main

import (
	"errors"
	"strconv"
	"time"
)

// seconds is a flag that takes a duration, or a number of seconds.
type seconds struct{ time.Duration }

func (s *seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		text = strconv.FormatFloat(n, 'f', -1, 64) + "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < 0 {
		return errors.New("negative")
	}
	s.Duration = d
	return nil
}

func (s *seconds) Type() string { return "duration" }

// String returns "0" for a default of zero, which the help then leaves out.
func (s *seconds) String() string {
	if s.Duration == 0 {
		return "0"
	}
	return s.Duration.String()
}
