package main

import "github.com/spf13/cobra"

// commands are all commands, in the order of the help.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.diffCmd(),
		a.applyCmd(),
		a.statusCmd(),
		a.runCmd(),
		a.historyCmd(),
		a.validateCmd(),
		a.adoptCmd(),
		a.demoCmd(),
		a.labCmd(),
		a.secretsCmd(),
		a.trustCmd(),
		a.doctorCmd(),
		a.snapshotCmd(),
		a.nextIDCmd(),
		a.explainCmd(),
		a.schemaCmd(),
		a.versionCmd(),
	}
}
