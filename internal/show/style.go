// Package show prints plans and reports: as text for people, as JSON for
// programs, as Markdown for merge requests. It decides nothing.
package show

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fatih/color"
	"github.com/proxops/proxops/internal/plan"
)

// Style says how text is decorated.
type Style struct {
	Color bool // escape sequences, for terminals only
}

func (s Style) paint(text string, attrs ...color.Attribute) string {
	if !s.Color {
		return text
	}
	c := color.New(attrs...)
	c.EnableColor()
	return c.Sprint(text)
}

// Bold makes text stand out on a terminal.
func Bold(s Style, t string) string { return s.bold(t) }

func (s Style) bold(t string) string { return s.paint(t, color.Bold) }
func (s Style) dim(t string) string  { return s.paint(t, color.Faint) }
func (s Style) bad(t string) string  { return s.paint(t, color.FgRed) }
func (s Style) warn(t string) string { return s.paint(t, color.FgYellow) }
func (s Style) good(t string) string { return s.paint(t, color.FgGreen) }

// verb is the sign and colour of a verb.
func (s Style) verb(v plan.Verb) string { return s.paintVerb(v, sign(v)+" "+string(v)) }

func (s Style) paintVerb(v plan.Verb, text string) string {
	switch v {
	case plan.Create, plan.Clone, plan.Download:
		return s.good(text)
	case plan.Delete, plan.Stop:
		return s.bad(text)
	}
	return s.warn(text)
}

func sign(v plan.Verb) string {
	switch v {
	case plan.Create, plan.Clone, plan.Download:
		return "+"
	case plan.Delete:
		return "-"
	}
	return "~"
}

// Clean makes one line of text from PVE or git safe for a terminal: control
// characters and line breaks are shown as \n, \x1b and the like.
func Clean(s string) string {
	if strings.IndexFunc(s, odd) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case odd(r):
			b.WriteString(quoteRune(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// odd runes could move the cursor, change colours or reorder text.
func odd(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

func quoteRune(r rune) string {
	const hex = "0123456789abcdef"
	if r < 0x100 {
		return `\x` + string(hex[r>>4&15]) + string(hex[r&15])
	}
	return `\u` + string([]byte{hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15]})
}

func pad(s string, n int) string {
	if k := n - utf8.RuneCountInString(s); k > 0 {
		return s + strings.Repeat(" ", k)
	}
	return s
}
