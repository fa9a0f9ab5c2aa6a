package main

import (
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// aligned returns rows in columns, a line each. isBold reports whether a cell stands out; nil: none does.
func aligned(rows [][]string, isBold func(row, column int) bool) string {
	var widths []int
	for _, row := range rows {
		for column, cell := range row {
			if column == len(widths) {
				widths = append(widths, 0)
			}
			widths[column] = max(widths[column], ansi.StringWidth(cell))
		}
	}
	var text strings.Builder
	for i, row := range rows {
		var line strings.Builder
		for column, cell := range row {
			pad := strings.Repeat(" ", widths[column]-ansi.StringWidth(cell)+2)
			if isBold != nil && isBold(i, column) {
				cell = bold(cell)
			}
			line.WriteString(cell + pad)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}

// bold makes a text bold on a terminal.
func bold(text string) string {
	if text == "" {
		return ""
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// coloured reports whether a file is a terminal whose user wants colours.
func coloured(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
