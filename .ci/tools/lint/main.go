// Command lint is golangci-lint with the linter apiconventions built in, at the
// version that go.mod names.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "rulefleet.io/ci/tools/lint/apiconventions"
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo tells golangci-lint its own version, which a build of its command
// finds in the main module, and this one among the dependencies.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", GoVersion: "unknown", Commit: "?", Date: "?"}

	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}

	info.GoVersion = build.GoVersion

	for _, dep := range build.Deps {
		if dep.Path == "github.com/golangci/golangci-lint/v2" {
			info.Version = dep.Version
		}
	}

	return info
}
