// Command vulnerabilities runs govulncheck, if its database can be reached:
//
//	vulnerabilities [-require] GOVULNCHECK-ARGUMENT…
//
// Otherwise it says that nothing was checked, and succeeds, because machines without a network run the same checks.
// With -require, it fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"golang.org/x/vuln/scan"
)

const (
	defaultDatabase = "https://vuln.go.dev"
	patience        = 15 * time.Second
)

func main() {
	args := os.Args[1:]

	required := len(args) > 0 && args[0] == "-require"
	if required {
		args = args[1:]
	}

	database := os.Getenv("GOVULNDB")
	if database == "" {
		database = defaultDatabase
	}

	if err := reach(context.Background(), database); err != nil {
		fmt.Fprintf(os.Stderr, "vulnerabilities: NOT CHECKED: the database of Go's vulnerabilities cannot be reached: %v\n", err)

		if required {
			os.Exit(1)
		}

		return
	}

	os.Exit(check(database, args))
}

// reach reads the database's index of changes.
func reach(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, database+"/index/db.json", http.NoBody)
	if err != nil {
		return err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}

	_ = resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", req.URL, resp.Status)
	}

	return nil
}

func check(database string, args []string) int {
	cmd := scan.Command(context.Background(), append([]string{"-db", database}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr

	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
	}

	var code interface{ ExitCode() int }

	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return code.ExitCode() // govulncheck has printed what it found
	}

	fmt.Fprintln(os.Stderr, "vulnerabilities:", err)

	return 1
}
