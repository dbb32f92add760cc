package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Every link and picture of the site leads to something in it, or to the source, and nothing is
// loaded from elsewhere.
func TestSite(t *testing.T) {
	s := site{root: "../..", out: t.TempDir()}
	if err := s.build(); err != nil {
		t.Fatal(err)
	}
	files := os.DirFS(s.out)
	link := regexp.MustCompile(`(href|src)="([^"#]*)(#[^"]+)?"`)
	for _, e := range s.pages {
		text, err := fs.ReadFile(files, e.File)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			switch to := m[2]; {
			case to == "":
				hasHeading(t, e.File, string(text), m[3])
			case strings.HasPrefix(to, source):
				if _, err := os.Stat(path.Join(s.root, strings.TrimPrefix(to, source))); err != nil {
					t.Errorf("%s: %s: %v", e.File, to, err)
				}
			case strings.Contains(to, "://"):
				if m[1] == "src" {
					t.Errorf("%s loads %s", e.File, to)
				}
			default:
				there, err := fs.ReadFile(files, path.Join(path.Dir(e.File), to))
				if err != nil {
					t.Errorf("%s: %s: %v", e.File, to, err)
				}
				hasHeading(t, e.File, string(there), m[3])
			}
		}
		if strings.Contains(string(text), "<script") {
			t.Errorf("%s has a script", e.File)
		}
	}
	if len(s.pages) < 12 || s.pictures < 5 {
		t.Errorf("%d pages, %d pictures", len(s.pages), s.pictures)
	}
}

// hasHeading wants what a link ends in, such as #timers, in the page that it leads to.
func hasHeading(t *testing.T, from, page, fragment string) {
	t.Helper()
	if id := strings.TrimPrefix(fragment, "#"); id != "" && !strings.Contains(page, `id="`+id+`"`) {
		t.Errorf("%s: there is no heading for %s", from, fragment)
	}
}
