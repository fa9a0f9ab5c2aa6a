package main

import (
	"regexp"
	"strings"
)

// glob matches whole names: "*" stands for any text, slashes included, "?" for a character, "[a-z]" and "[!a-z]" for one
// of a set, and a backslash takes the meaning from the next.
type glob struct {
	literal string // what every name that matches begins with
	pattern *regexp.Regexp
}

// globOf returns the pattern that may be the only one of a command's arguments; without it all names match.
func globOf(args []string) (glob, error) {
	if len(args) == 0 {
		return newGlob("*")
	}
	return newGlob(args[0])
}

func newGlob(pattern string) (glob, error) {
	var expression, literal strings.Builder
	plain := true
	rest := []rune(pattern)
	for i := 0; i < len(rest); i++ {
		end := i
		switch r := rest[i]; r {
		case '*':
			expression.WriteString(".*")
		case '?':
			expression.WriteString(".")
		case '[':
			for end = i + 1; end < len(rest) && (rest[end] != ']' || end == i+1); end++ {
			}
			if end >= len(rest) {
				return glob{}, mistakef("pattern %q: a [ without its ]", pattern)
			}
			set := strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(string(rest[i+1 : end]))
			if not, ok := strings.CutPrefix(set, "!"); ok {
				set = "^" + not
			}
			expression.WriteString("[" + set + "]")
		default:
			if r == '\\' && i+1 < len(rest) {
				i++
				r = rest[i]
			}
			expression.WriteString(regexp.QuoteMeta(string(r)))
			if plain {
				literal.WriteRune(r)
			}
			continue
		}
		plain, i = false, end
	}
	compiled, err := regexp.Compile("(?s)^" + expression.String() + "$")
	if err != nil {
		return glob{}, mistakef("pattern %q: %w", pattern, err)
	}
	return glob{literal.String(), compiled}, nil
}

func (g glob) matches(name string) bool { return g.pattern.MatchString(name) }
