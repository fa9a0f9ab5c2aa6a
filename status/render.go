package status

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
	"unicode"
)

//go:embed page.html style.css script.js
var assets embed.FS

var (
	// version is that of the assets: their addresses have it, and a page with another one loads itself again.
	version = digest("page.html", "style.css", "script.js")

	pages = template.Must(template.New("").Funcs(template.FuncMap{
		"when": when,
		"text": readable,
		"none": func(n int) bool { return n == 0 },
	}).ParseFS(assets, "page.html"))
)

func digest(files ...string) string {
	sum := sha256.New()
	for _, file := range files {
		sum.Write(asset(file))
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

func asset(file string) []byte {
	content, err := assets.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	return content
}

// serveAsset reports whether file is one.
func serveAsset(w http.ResponseWriter, r *http.Request, file string) bool {
	kind := map[string]string{"style.css": "text/css", "script.js": "text/javascript"}[file]
	if kind == "" {
		return false
	}
	w.Header().Set("Content-Type", kind+"; charset=utf-8")
	if r.URL.Query().Get("v") == version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(asset(file))
	return true
}

// picture is what a viewer sees at a moment.
type picture struct {
	Title      string
	Head, Foot template.HTML // above and below the rows
	Rows       []shown
}

// shown is a row of a picture.
type shown struct {
	ID   string
	HTML template.HTML
}

// frame is what surrounds a picture.
type frame struct {
	picture
	Heading, Where, Version string
	Now                     time.Time
	Query                   string // the filter
	Lock                    string // the one that is shown; empty for all
}

func serveJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // as the tool prints it; the type says that it is no page
	_ = e.Encode(value)
}

func servePage(w http.ResponseWriter, f frame) {
	f.Version = version
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(render("page", f)))
}

// render executes a template. Names, labels and values are others' texts: it escapes them.
func render(name string, data any) template.HTML {
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, name, data); err != nil {
		panic(fmt.Errorf("status: template %s: %w", name, err)) // of a field that does not exist
	}
	return template.HTML(out.String())
}

// longestText is how many characters of others' texts are shown: a candidate's value may be large.
const longestText = 200

// readable replaces what is not printed, or would reorder the text around it, and shortens it.
func readable(text string) string {
	short := []rune(text[:min(len(text), 4*longestText)])
	if len(short) > longestText {
		short = append(short[:longestText], '…')
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '�'
		}
		return r
	}, string(short))
}

// when is how long t was before now. Without now the script fills that in.
func when(t, now time.Time) template.HTML {
	if t.IsZero() {
		return "<i>–</i>" // not known
	}
	t = t.UTC()
	age := ""
	if !now.IsZero() {
		age = ago(now.Sub(t))
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="since %s">%s</time>`,
		t.Format("2006-01-02T15:04:05.000Z"), t.Format("2006-01-02 15:04:05 UTC"), age))
}

// ago is an age as the script shows it.
func ago(age time.Duration) string {
	s := int64(max(0, age) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd %dh", s/86400, s/3600%24)
}

func kindOf(kind string, size int64) string {
	if size > 0 {
		return fmt.Sprintf("%s of %d", kind, size)
	}
	return kind
}
