package aof

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A Writer writes the commands of a base file.
type Writer struct {
	out  *bufio.Writer
	room []byte
}

// Write writes a command.
func (w *Writer) Write(args ...[]byte) error {
	w.room = resp.AppendCommand(w.room[:0], args...)
	_, err := w.out.Write(w.room)
	return err
}

// writeBase makes a file that is there as a whole, or not at all.
func writeBase(path string, dump func(w *Writer) error) error {
	file, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := &Writer{out: bufio.NewWriterSize(file, 1<<20)}
	err = dump(w)
	if err = errors.Join(err, w.out.Flush(), file.Sync(), file.Close()); err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		_ = os.Remove(path + ".tmp")
		return err
	}
	return SyncDir(filepath.Dir(path))
}
