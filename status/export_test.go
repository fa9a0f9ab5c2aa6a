package status

import "time"

// WithLinger sets how long locks are followed after the last viewer has left.
func WithLinger(d time.Duration) Option {
	return optionFunc(func(o *options) { o.linger = d })
}

// WithWriteLimit sets how long a viewer may take none of an event.
func WithWriteLimit(d time.Duration) Option {
	return optionFunc(func(o *options) { o.writeLimit = d })
}

// Following reports whether locks are followed.
func (p *Page) Following() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.feed != nil
}
