package main

import "path/filepath"

// walDir is where a data directory holds its log.
func walDir(dataDir string) string { return filepath.Join(dataDir, "log") }
