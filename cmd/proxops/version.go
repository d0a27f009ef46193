package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionText is the released version, or what the build knows of its commit.
func versionText() string {
	v, rev, dirty := version, "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 10:
				rev = s.Value[:10]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+changes"
			}
		}
	}
	text := cmp.Or(v, "devel")
	if rev != "" {
		text += " (" + rev + dirty + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", GroupID: "more", Args: noArgs, Short: "Print the version",
		Run: func(*cobra.Command, []string) { fmt.Fprintln(a.out, "proxops", versionText()) },
	}
}
