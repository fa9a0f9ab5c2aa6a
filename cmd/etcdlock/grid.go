package main

import (
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// gridBatch is how many rows a grid keeps until it knows how wide they are.
const gridBatch = 500

// grid prints rows in columns. It prints some rows at a time, so that a long list needs little memory; a column never
// gets narrower. The first row is the header.
type grid struct {
	to     io.Writer
	colour bool
	// bold reports whether a cell stands out.
	bold   func(row, column int, cell string) bool
	rows   [][]string
	first  int // the number of rows[0]
	widths []int
}

func (g *grid) add(row ...string) error {
	g.rows = append(g.rows, row)
	if len(g.rows) < gridBatch {
		return nil
	}
	return g.flush()
}

func (g *grid) flush() error {
	for _, row := range g.rows {
		for i, cell := range row {
			if i == len(g.widths) {
				g.widths = append(g.widths, 0)
			}
			g.widths[i] = max(g.widths[i], ansi.StringWidth(cell))
		}
	}
	var text strings.Builder
	for n, row := range g.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", g.widths[i]-ansi.StringWidth(cell)+2)
			if g.colour && (g.first+n == 0 || g.bold != nil && g.bold(g.first+n, i, cell)) {
				cell = "\x1b[1m" + cell + "\x1b[0m"
			}
			line.WriteString(cell + pad)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	g.first += len(g.rows)
	g.rows = g.rows[:0]
	_, err := io.WriteString(g.to, text.String())
	return err
}

// coloured reports whether a file is a terminal whose user wants colours.
func coloured(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
