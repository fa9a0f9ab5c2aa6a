package link

// What follows is for tests of package session only.

// ClaimedPrefixes returns the size of the table behind Claim.
func (l *Link) ClaimedPrefixes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots)
}

// Unsettled counts what callers have given up and is under way.
func (l *Link) Unsettled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.underWay
}

// UnsettledLimit is how much of that there may be before Admit waits.
const UnsettledLimit = unsettledLimit

// AloneLimit is how many transactions may be under way before others collect.
const AloneLimit = aloneLimit

// ShareAll makes l send everything as shared requests, also what is alone.
func (l *Link) ShareAll() { l.coalescers.writes.alone = 0 }

// Epochs counts the epochs that the link remembers.
func (l *Link) Epochs() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.epochs)
}
