// mkimage writes an OCI image archive, for `ctr images import`, from files of
// this machine. A file lands at /<base name>, or at PATH for FILE=PATH; the first
// is the entrypoint. The shared libraries that a file needs come along.
//
//	mkimage [-user UID] [-env NAME=VALUE]... OUT.tar NAME:TAG FILE[=PATH]...
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
)

type obj = map[string]any

func main() {
	log.SetFlags(0)
	user := flag.String("user", "65532", "user (and group) id that the image runs as")
	var env []string
	flag.Func("env", "environment variable `NAME=VALUE`; may be repeated", func(v string) error {
		env = append(env, v)
		return nil
	})
	flag.Parse()
	if flag.NArg() < 3 {
		log.Fatal("usage: mkimage [-user UID] [-env NAME=VALUE]... OUT.tar NAME:TAG FILE[=PATH]...")
	}
	out, name := flag.Arg(0), flag.Arg(1)
	var paths []string // in the image, without the leading slash
	source := map[string]string{}
	add := func(file, path string) {
		path = strings.TrimPrefix(path, "/")
		if _, known := source[path]; !known {
			paths, source[path] = append(paths, path), file
		}
	}
	for _, arg := range flag.Args()[2:] {
		file, path, named := strings.Cut(arg, "=")
		if !named {
			path = filepath.Base(file)
		}
		add(file, path)
	}
	for _, path := range slices.Clone(paths) {
		for _, lib := range libraries(source[path]) {
			add(lib, lib)
		}
	}

	var layer bytes.Buffer
	lw := tar.NewWriter(&layer)
	for _, d := range []string{"etc/", "tmp/"} {
		mode := int64(0o755)
		if d == "tmp/" {
			mode = 0o1777
		}
		check(lw.WriteHeader(&tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: mode}))
	}
	passwd := "root:x:0:0::/:\n"
	if *user != "0" {
		passwd += fmt.Sprintf("app:x:%s:%s::/:\n", *user, *user)
	}
	put(lw, "etc/passwd", 0o644, []byte(passwd))
	for _, p := range paths {
		data, err := os.ReadFile(source[p])
		check(err)
		put(lw, p, 0o755, data)
	}
	check(lw.Close())

	blobs := map[string][]byte{}
	blob := func(mediaType string, data []byte) obj {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		blobs["blobs/sha256/"+sum] = data
		return obj{"mediaType": mediaType, "digest": "sha256:" + sum, "size": len(data)}
	}
	l := blob("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	c := blob("application/vnd.oci.image.config.v1+json", marshal(obj{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": obj{
			"User":       *user + ":" + *user,
			"Entrypoint": []string{"/" + paths[0]},
			"Env":        append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, env...),
			"WorkingDir": "/",
		},
		"rootfs": obj{"type": "layers", "diff_ids": []any{l["digest"]}},
	}))
	m := blob("application/vnd.oci.image.manifest.v1+json", marshal(obj{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": c, "layers": []any{l},
	}))
	m["annotations"] = obj{"io.containerd.image.name": name}
	blobs["index.json"] = marshal(obj{"schemaVersion": 2, "manifests": []any{m}})
	blobs["oci-layout"] = marshal(obj{"imageLayoutVersion": "1.0.0"})

	f, err := os.Create(out)
	check(err)
	w := tar.NewWriter(f)
	names := make([]string, 0, len(blobs))
	for n := range blobs {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		put(w, n, 0o644, blobs[n])
	}
	check(w.Close())
	check(f.Close())
}

// libraries lists the shared libraries, the loader included, that ldd finds for
// a program; none for a static one or for a file that is no program.
func libraries(file string) (libs []string) {
	text, err := exec.Command("ldd", file).Output()
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(string(text)) {
		if strings.HasPrefix(field, "/") {
			libs = append(libs, strings.TrimSuffix(field, ":"))
		}
	}
	return libs
}

func put(w *tar.Writer, name string, mode int64, data []byte) {
	check(w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}))
	_, err := io.Copy(w, bytes.NewReader(data))
	check(err)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	check(err)
	return b
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
