package fairqueue

import (
	"strconv"
	"strings"

	"github.com/etcdlock/locks/internal/link"
)

// epochFolder is where the keys of sessions' epochs are. No escaped name has an exclamation mark.
const epochFolder = "!/epoch/"

// epochFolders are the folders that a queue's epochs may be in, the best one first. One key beside
// the queue serves all queues there. A user that may use this queue only can write one below it,
// where other programs would take it for a ticket.
func epochFolders(prefix string, foreign bool) []string {
	beside := prefix[:strings.LastIndex(prefix, "/")+1] + epochFolder
	if foreign {
		return []string{beside}
	}
	return []string{beside, prefix + "/" + epochFolder}
}

// chooseEpoch gives the parts, which one transaction creates, the epoch of the first queue where it
// is not denied. One is enough: without its condition none of them is created.
func chooseEpoch(parts []*part) {
	var epoch *link.Epoch
	for _, p := range parts {
		keys := make([]string, len(p.queue.epochs))
		for i, folder := range p.queue.epochs {
			keys[i] = folder + strconv.FormatInt(int64(p.session.Lease()), 16)
		}
		if epoch = p.link().Epoch(keys...); epoch.Checked() {
			break
		}
	}
	for _, p := range parts {
		p.epoch = epoch
	}
}
