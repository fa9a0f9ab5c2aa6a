package link

// ClaimedPrefixes returns the size of the table behind Claim.
func (l *Link) ClaimedPrefixes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots)
}

// Abandoned counts what callers have given up and is unfinished.
func (l *Link) Abandoned() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.abandoned
}

// AbandonedLimit is how much of that there may be before Admit waits.
const AbandonedLimit = abandonedLimit

// Epochs counts the epochs that the link remembers.
func (l *Link) Epochs() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.epochs)
}
