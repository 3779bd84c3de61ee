// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// stage is where the demonstration prints and waits.
type stage struct {
	out   io.Writer
	color bool
	// wait, if set, is read a line of before each chapter but the first.
	wait    io.Reader
	lines   *bufio.Reader
	chapter int
	err     error // the first one of out
}

func newStage(out io.Writer, color bool) *stage { return &stage{out: out, color: color} }

func (s *stage) print(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.out, text)
	}
}

func (s *stage) bold(text string) string {
	if !s.color {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// open begins a chapter, and says in a sentence or two what it is about.
func (s *stage) open(ctx context.Context, title, words string) error {
	s.chapter++
	if s.chapter > 1 {
		s.print("\n")
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
	head := fmt.Sprintf("%d. %s", s.chapter, title)
	s.print(s.bold(head) + "\n" + strings.Repeat("=", len([]rune(head))) + "\n\n")
	s.say(words)
	return ctx.Err()
}

// pause waits for a line, or for the end of ctx.
func (s *stage) pause(ctx context.Context) error {
	if s.wait == nil {
		return nil
	}
	if s.lines == nil {
		s.lines = bufio.NewReader(s.wait)
	}
	s.print("(Enter goes on) ")
	read := make(chan error, 1)
	go func() { // ends with a line, else with the program
		_, err := s.lines.ReadString('\n')
		read <- err
	}()
	select {
	case err := <-read:
		if errors.Is(err, io.EOF) { // there is no terminal
			s.wait, err = nil, nil
			s.print("\n")
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// say prints a paragraph.
func (s *stage) say(words string) {
	const width = 110
	line := 0
	for i, word := range strings.Fields(words) {
		switch n := len([]rune(word)); {
		case i == 0:
			line = n
		case line+1+n > width:
			s.print("\n")
			line = n
		default:
			s.print(" ")
			line += 1 + n
		}
		s.print(word)
	}
	s.print("\n")
}

// show prints what is typed, and what is answered.
func (s *stage) show(command, output string) {
	s.print("\n    " + s.bold("$ "+command) + "\n")
	s.block(output)
}

// asks shows what Placement is asked without a command, and the gist of its answer.
func (s *stage) asks(path, gist string) {
	s.print("\n    " + s.bold("GET "+path) + "\n")
	s.block(gist)
}

// block prints output, indented. Lines that are too long go on below, further in.
func (s *stage) block(output string) {
	const width = 121 // with the indent
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \n")
		if line == "" {
			continue
		}
		indent := "    "
		for len(indent)+len([]rune(line)) > width {
			cut := strings.LastIndex(string([]rune(line)[:width-len(indent)]), " ")
			if strings.TrimSpace(line[:max(cut, 0)]) == "" {
				break // one long word
			}
			s.print(indent + line[:cut] + "\n")
			indent, line = "          ", line[cut+1:]
		}
		s.print(indent + line + "\n")
	}
}

// found says that something was checked and is so.
func (s *stage) found(words string) { s.print("\n"); s.say(s.bold("✓") + " " + words) }
