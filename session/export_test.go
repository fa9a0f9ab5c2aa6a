package session

// WithMonotonicClock lets tests run in virtual time, which moves only Go's own
// clock.
func WithMonotonicClock() Option {
	return optionFunc(func(o *options) { o.now = monotonicClock() })
}
