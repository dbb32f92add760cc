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
	link := regexp.MustCompile(`(href|src)="([^"#]+)[^"]*"`)
	for _, e := range s.pages {
		text, err := fs.ReadFile(files, e.File)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			switch to := m[2]; {
			case strings.HasPrefix(to, source):
				if _, err := os.Stat(path.Join(s.root, strings.TrimPrefix(to, source))); err != nil {
					t.Errorf("%s: %s: %v", e.File, to, err)
				}
			case strings.Contains(to, "://"):
				if m[1] == "src" {
					t.Errorf("%s loads %s", e.File, to)
				}
			default:
				if _, err := fs.Stat(files, path.Join(path.Dir(e.File), to)); err != nil {
					t.Errorf("%s: %s: %v", e.File, to, err)
				}
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
