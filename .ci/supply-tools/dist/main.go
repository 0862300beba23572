// Command dist makes the files of a release of the kubectl plugin.
//
//	dist VERSION LICENSE PROGRAMS DIR
//
// PROGRAMS has a folder OS_ARCH for each platform, with the program. The command writes these files to DIR:
//
//	kubectl-rulefleet_VERSION_OS_ARCH.tar.gz, or .zip for Windows, with the program and LICENSE
//	rulefleet-VERSION.tgz, the chart that helm package has put there, with other times
//	rulefleet.yaml, the manifest for krew
//	checksums.txt, with the SHA-256 of every file in DIR
//
// The same input gives the same files. SOURCE_DATE_EPOCH is the time of the files in the archives.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"golang.org/x/mod/semver"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: dist VERSION LICENSE PROGRAMS DIR")
		os.Exit(64)
	}

	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

const (
	program   = "kubectl-rulefleet"
	checksums = "checksums.txt"
	manifest  = "rulefleet.yaml" // krew names the file as the plugin
)

// platform is a platform that the plugin is built for.
type platform struct{ OS, Arch, Archive, Sum, Bin string }

func run(version, licence, programs, dir string) error {
	if err := check(version); err != nil {
		return err
	}

	at, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}

	folders, err := filepath.Glob(filepath.Join(programs, "*_*"))
	if err != nil || len(folders) == 0 {
		return errors.Join(err, fmt.Errorf("there are no programs in %s", programs))
	}

	slices.Sort(folders)

	var platforms []platform

	for _, folder := range folders {
		p, err := pack(version, licence, folder, dir, at)
		if err != nil {
			return fmt.Errorf("packing %s: %w", folder, err)
		}

		platforms = append(platforms, p)
	}

	if err := stamp(filepath.Join(dir, fmt.Sprintf("rulefleet-%s.tgz", version)), at); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}

	var b bytes.Buffer
	if err := krew.Execute(&b, map[string]any{"Version": version, "Platforms": platforms}); err != nil {
		return fmt.Errorf("writing the manifest for krew: %w", err)
	}

	if err := os.WriteFile(filepath.Join(dir, manifest), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the manifest for krew: %w", err)
	}

	return sums(dir)
}

// check refuses what is not a version of a release: the name of an image can't have a +, and Helm and krew need three
// numbers.
func check(version string) error {
	v := "v" + version
	if !semver.IsValid(v) || semver.Canonical(v) != v {
		return fmt.Errorf("%q is not a version such as 0.1.0 or 0.1.0-rc.1", version)
	}

	return nil
}

// epoch reads SOURCE_DATE_EPOCH: https://reproducible-builds.org/specs/source-date-epoch.
func epoch(text string) (time.Time, error) {
	if text == "" {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), nil
	}

	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}

	return time.Unix(seconds, 0).UTC(), nil
}

// file is a file of an archive.
type file struct {
	name string
	mode os.FileMode
	data []byte
}

// pack writes the archive of a platform.
func pack(version, licence, folder, dir string, at time.Time) (platform, error) {
	system, arch, _ := strings.Cut(filepath.Base(folder), "_")
	p := platform{OS: system, Arch: arch, Bin: program, Archive: fmt.Sprintf("%s_%s_%s_%s.tar.gz", program, version, system, arch)}
	write := tarball

	if system == "windows" {
		p.Bin += ".exe"
		p.Archive = strings.TrimSuffix(p.Archive, "tar.gz") + "zip"
		write = zipped
	}

	var files []file

	for _, f := range []struct {
		path, name string
		mode       os.FileMode
	}{{licence, "LICENSE", 0o644}, {filepath.Join(folder, p.Bin), p.Bin, 0o755}} {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return p, err
		}

		files = append(files, file{f.name, f.mode, data})
	}

	var b bytes.Buffer
	if err := write(&b, files, at); err != nil {
		return p, err
	}

	sum := sha256.Sum256(b.Bytes())
	p.Sum = hex.EncodeToString(sum[:])

	return p, os.WriteFile(filepath.Join(dir, p.Archive), b.Bytes(), 0o644)
}

// stamp replaces the times in an archive, which helm package sets to the present time.
func stamp(path string, at time.Time) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}

	var (
		files []file
		b     bytes.Buffer
	)

	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return err
		}

		content, err := io.ReadAll(tr)
		if err != nil {
			return err
		}

		files = append(files, file{h.Name, h.FileInfo().Mode(), content})
	}

	if err := tarball(&b, files, at); err != nil {
		return err
	}

	return os.WriteFile(path, b.Bytes(), 0o644)
}

func tarball(b *bytes.Buffer, files []file, at time.Time) error {
	zw, err := gzip.NewWriterLevel(b, gzip.BestCompression)
	if err != nil {
		return err
	}

	tw := tar.NewWriter(zw)

	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at, Format: tar.FormatUSTAR}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}

		if _, err := tw.Write(f.data); err != nil {
			return err
		}
	}

	return errors.Join(tw.Close(), zw.Close())
}

func zipped(b *bytes.Buffer, files []file, at time.Time) error {
	zw := zip.NewWriter(b)

	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)

		w, err := zw.CreateHeader(header)
		if err != nil {
			return err
		}

		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}

	return zw.Close()
}

// sums writes the checksums of all files in a folder, as sha256sum does.
func sums(dir string) error {
	entries, err := os.ReadDir(dir) // in the order of names
	if err != nil {
		return fmt.Errorf("listing the files of the release: %w", err)
	}

	var b strings.Builder

	for _, e := range entries {
		if e.IsDir() || e.Name() == checksums {
			continue
		}

		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("computing a checksum: %w", err)
		}

		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), e.Name())
	}

	if err := os.WriteFile(filepath.Join(dir, checksums), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}

	return nil
}

// krew is the manifest of a plugin: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
var krew = template.Must(template.New("krew").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: rulefleet
spec:
  version: v{{ .Version }}
  homepage: https://github.com/rulefleet/rulefleet
  shortDescription: Manage the alert rules of a fleet of clusters
  description: |
    Installs Rulefleet on a hub, registers clusters as spokes, and shows where
    Prometheus alert rules are delivered, evaluated and firing, and why a rule
    does not work in a cluster.

    Usage: kubectl rulefleet --help
  platforms:
{{- range .Platforms }}
    - selector:
        matchLabels:
          os: {{ .OS }}
          arch: {{ .Arch }}
      uri: https://github.com/rulefleet/rulefleet/releases/download/v{{ $.Version }}/{{ .Archive }}
      sha256: {{ .Sum }}
      bin: {{ .Bin }}
{{- end }}
`))
