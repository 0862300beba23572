package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, content string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

// inputs has a program for two platforms, and another file of the release.
func inputs(t *testing.T) (licence, programs, dir string) {
	t.Helper()

	root := t.TempDir()
	licence, programs, dir = filepath.Join(root, "LICENSE"), filepath.Join(root, "programs"), filepath.Join(root, "out")
	write(t, licence, "the licence")
	write(t, filepath.Join(programs, "linux_arm64", "kubectl-rulefleet"), "for linux")
	write(t, filepath.Join(programs, "windows_amd64", "kubectl-rulefleet.exe"), "for windows")
	chart(t, dir, time.Now())

	return licence, programs, dir
}

// chart writes what helm package does.
func chart(t *testing.T, dir string, at time.Time) {
	t.Helper()

	var b bytes.Buffer
	if err := tarball(&b, []file{{"rulefleet/Chart.yaml", 0o644, []byte("name: rulefleet")}}, at); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(dir, "rulefleet-1.2.3.tgz"), b.String())
}

func TestArchives(t *testing.T) {
	licence, programs, dir := inputs(t)
	if err := run("1.2.3", licence, programs, dir); err != nil {
		t.Fatal(err)
	}

	tarball := read(t, filepath.Join(dir, "kubectl-rulefleet_1.2.3_linux_arm64.tar.gz"))

	zr, err := gzip.NewReader(strings.NewReader(tarball))
	if err != nil {
		t.Fatal(err)
	}

	var got []string

	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, fmt.Sprintf("%s %v %s", h.Name, h.FileInfo().Mode(), content))
	}

	zipped := read(t, filepath.Join(dir, "kubectl-rulefleet_1.2.3_windows_amd64.zip"))

	archive, err := zip.NewReader(strings.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range archive.File {
		content, err := fs.ReadFile(archive, f.Name)
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, fmt.Sprintf("%s %v %s", f.Name, f.Mode(), content))
	}

	want := "LICENSE -rw-r--r-- the licence\nkubectl-rulefleet -rwxr-xr-x for linux\nLICENSE -rw-r--r-- the licence\nkubectl-rulefleet.exe -rwxr-xr-x for windows"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}

	manifest := read(t, filepath.Join(dir, "rulefleet.yaml"))
	for _, want := range []string{
		"  name: rulefleet\n", "  version: v1.2.3\n",
		fmt.Sprintf("          os: linux\n          arch: arm64\n      uri: https://github.com/rulefleet/rulefleet/releases/download/v1.2.3/kubectl-rulefleet_1.2.3_linux_arm64.tar.gz\n      sha256: %x\n      bin: kubectl-rulefleet\n", sha256.Sum256([]byte(tarball))),
		fmt.Sprintf("          os: windows\n          arch: amd64\n      uri: https://github.com/rulefleet/rulefleet/releases/download/v1.2.3/kubectl-rulefleet_1.2.3_windows_amd64.zip\n      sha256: %x\n      bin: kubectl-rulefleet.exe\n", sha256.Sum256([]byte(zipped))),
	} {
		if !strings.Contains(manifest, want) {
			t.Errorf("the manifest lacks\n%s\nit is\n%s", want, manifest)
		}
	}

	sums := read(t, filepath.Join(dir, "checksums.txt"))
	if want := fmt.Sprintf("%x  rulefleet-1.2.3.tgz\n", sha256.Sum256([]byte(read(t, filepath.Join(dir, "rulefleet-1.2.3.tgz"))))); strings.Count(sums, "\n") != 4 || !strings.Contains(sums, want) {
		t.Errorf("the checksums are\n%s", sums)
	}
}

func TestTheSameInputGivesTheSameFiles(t *testing.T) {
	licence, programs, dir := inputs(t)
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")

	if err := run("1.2.3", licence, programs, dir); err != nil {
		t.Fatal(err)
	}

	first := read(t, filepath.Join(dir, "checksums.txt"))
	chart(t, dir, time.Now().Add(time.Hour))

	if err := run("1.2.3", licence, programs, dir); err != nil {
		t.Fatal(err)
	}

	if second := read(t, filepath.Join(dir, "checksums.txt")); !bytes.Equal([]byte(first), []byte(second)) {
		t.Errorf("got\n%s\nand then\n%s", first, second)
	}

	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")

	if err := run("1.2.3", licence, programs, dir); err == nil {
		t.Error("SOURCE_DATE_EPOCH is not a number")
	}
}

func TestVersions(t *testing.T) {
	for version, valid := range map[string]bool{
		"1.2.3": true, "0.1.0-rc.1": true, "1.2": false, "v1.2.3": false, "1.2.3+build": false, "049f632": false, "": false,
	} {
		if err := check(version); (err == nil) != valid {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestNoPrograms(t *testing.T) {
	licence, _, dir := inputs(t)
	if err := run("1.2.3", licence, t.TempDir(), dir); err == nil {
		t.Error("there are no programs")
	}
}
