// Package examples holds example repositories: demo is the one that proxops
// demo writes out, repository shows every kind and most fields.
package examples

import "embed"

// Demo is the repository of proxops demo, below the folder demo.
//
//go:embed demo
var Demo embed.FS
