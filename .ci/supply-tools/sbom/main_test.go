package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRecognize(t *testing.T) {
	const (
		mit = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software … THE SOFTWARE IS PROVIDED \"AS IS\""
		bsd = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted"
	)

	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"MIT":     {mit, []string{"MIT"}},
		"two":     {bsd, []string{"BSD-2-Clause"}},
		"three":   {bsd + "\n * Neither the name of", []string{"BSD-3-Clause"}},
		"several": {mit + bsd, []string{"BSD-2-Clause", "MIT"}},
		"limited": {mit + "\n“Commons Clause” License Condition", []string{"Commons-Clause", "MIT"}},
		"GPL":     {"GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007", []string{"GPL-3.0"}},
		"unknown": {"All rights reserved.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := recognize(tc.text); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestLicencesIn(t *testing.T) {
	dir := t.TempDir()

	if _, err := licencesIn(dir); err == nil || !strings.Contains(err.Error(), "no licence found") {
		t.Errorf("an empty folder: %v", err)
	}

	if err := os.WriteFile(filepath.Join(dir, "LICENSE.md"), []byte("All rights reserved."), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := licencesIn(dir); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("an unknown licence: %v", err)
	}
}

func TestCheck(t *testing.T) {
	var out bytes.Buffer

	parts := []part{{path: "a", version: "v1", licences: []string{"MIT"}}, {path: "b", version: "v2", licences: []string{"Apache-2.0", "GPL-3.0"}}}
	if err := check(&out, ids("# which\nMIT # x\n\nApache-2.0\n"), parts); err == nil || err.Error() != "b v2 has the licence GPL-3.0, which is not allowed" {
		t.Errorf("got %v", err)
	}

	if err := check(&out, []string{"MIT"}, parts[:1]); err != nil || out.String() != "licences of 1 modules: 1 MIT\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
}

func TestWrite(t *testing.T) {
	var (
		out bytes.Buffer
		bom struct {
			BOMFormat  string
			Metadata   struct{ Component struct{ Name, Version string } }
			Components []struct {
				PURL   string
				Hashes []struct{ Content string }
			}
		}
	)

	if err := write(&out, "program", "v1", []part{{path: "example.com/A/b", version: "v2.0.0+incompatible", sum: "h1:AAEC", licences: []string{"MIT"}}}); err != nil {
		t.Fatal(err)
	}

	if err := json.Unmarshal(out.Bytes(), &bom); err != nil {
		t.Fatal(err)
	}

	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != "v1" || len(bom.Components) != 1 ||
		bom.Components[0].PURL != "pkg:golang/example.com/A/b@v2.0.0%2Bincompatible" || bom.Components[0].Hashes[0].Content != "000102" {
		t.Errorf("got %s", out.String())
	}
}
