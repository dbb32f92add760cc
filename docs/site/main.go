// Command site makes a small static site of README.md and docs: no script, and nothing from
// elsewhere.
//
//	cd docs/site && go run . -out /tmp/site
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

// source is where what the site does not have can be read.
const source = "https://github.com/loopwheel/loopwheel/blob/main/"

//go:embed page.html
var layout string

var (
	page    = template.Must(template.New("page").Parse(layout))
	convert = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	link    = regexp.MustCompile(`(href|src)="([^":#]+)(#[^"]*)?"`)
	heading = regexp.MustCompile(`(?m)^# (.*)$`)
	image   = regexp.MustCompile(`<img src="([^"]+)"[^>]*>`)
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("site: ")
	root := flag.String("root", "../..", "the repository's `directory`")
	out := flag.String("out", "", "where to write the site: an empty or new `directory`")
	flag.Parse()
	if *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	s := site{root: *root, out: *out}
	if err := s.build(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d pages, %d pictures in %s\n", len(s.pages), s.pictures, *out)
}

// A site is what is built.
type site struct {
	root, out string
	pages     []entry
	pictures  int
}

// An entry is a page, by its Markdown's name from the root.
type entry struct{ Name, File, Title string }

func (s *site) build() error {
	names := []string{"README.md", "docs/getting-started.md", "docs/guide.md"}
	others, err := fs.Glob(os.DirFS(s.root), "docs/*.md")
	if err != nil {
		return err
	}
	for _, name := range others {
		if name != names[1] && name != names[2] {
			names = append(names, name)
		}
	}
	for _, name := range append(names, "CHANGELOG.md", "CONTRIBUTING.md") {
		if err := s.add(name); err != nil {
			return err
		}
	}
	for _, e := range s.pages {
		if err := s.write(e); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return s.copyPictures()
}

// add notes a page and its title.
func (s *site) add(name string) error {
	text, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return err
	}
	m := heading.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s has no title", name)
	}
	file := strings.TrimSuffix(name, ".md") + ".html"
	if name == "README.md" {
		file = "index.html"
	}
	s.pages = append(s.pages, entry{name, file, string(m[1])})
	return nil
}

// write makes one page.
func (s *site) write(e entry) error {
	text, err := os.ReadFile(filepath.Join(s.root, e.Name))
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := convert.Convert(text, &body); err != nil {
		return err
	}
	up := strings.Repeat("../", strings.Count(e.Name, "/"))
	var whole bytes.Buffer
	if err := page.Execute(&whole, map[string]any{
		"Title": e.Title, "Up": up, "Pages": s.pages, "This": e.Name,
		"Body": template.HTML(s.relink(e.Name, alone(body.String()))), // of our own files
	}); err != nil {
		return err
	}
	return s.put(e.File, whole.Bytes())
}

// alone has each picture lead to itself, where a phone can enlarge it.
func alone(body string) string { return image.ReplaceAllString(body, `<a href="$1">$0</a>`) }

// relink has links to Markdown lead to its page, and links to what the site does not have to the
// source.
func (s *site) relink(from, body string) string {
	return link.ReplaceAllStringFunc(body, func(found string) string {
		m := link.FindStringSubmatch(found)
		name := path.Join(path.Dir(from), m[2])
		for _, e := range s.pages {
			if e.Name == name {
				return fmt.Sprintf(`%s="%s%s%s"`, m[1], strings.Repeat("../", strings.Count(from, "/")), e.File, m[3])
			}
		}
		if path.Ext(name) == ".svg" {
			return found
		}
		return fmt.Sprintf(`%s="%s%s%s"`, m[1], source, name, m[3])
	})
}

func (s *site) copyPictures() error {
	for _, pattern := range []string{"docs/*.svg", "docs/performance/*.svg"} {
		names, err := fs.Glob(os.DirFS(s.root), pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(s.root, name))
			if err == nil {
				err = s.put(name, b)
			}
			if err != nil {
				return err
			}
			s.pictures++
		}
	}
	return nil
}

func (s *site) put(name string, b []byte) error {
	file := filepath.Join(s.out, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
