package kind

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Artifact is the spec of ISO, CTTemplate and DiskImage: a file that PVE
// downloads to a storage of each named node and that is never deleted.
type Artifact struct {
	NodeList  field.Opt[[]string] // nodes
	NodeOne   field.Opt[string]   // node, the older spelling of one
	StorageID field.Opt[string]
	File      field.Opt[string]
	URL       field.Opt[string]
	Checksum  *Checksum

	content string // PVE's content type
}

// Checksum is the block checksum of an artifact.
type Checksum struct {
	Algorithm field.Opt[string]
	Value     field.Opt[string]
}

// digestLength is the number of hex digits of each algorithm that manifests
// may name.
var digestLength = map[string]int{"sha256": 64, "sha512": 128, "sha1": 40, "md5": 32}

// Shape implements Spec. Keys are the parameters of PVE's download-url call;
// nothing of an artifact is a configuration key.
func (a *Artifact) Shape(*field.Guest) *field.Block {
	return field.Group("", "",
		field.Var(&a.NodeList, "nodes", "", "", nodeNames,
			"Nodes whose storage must hold the file, each downloaded by itself. A shared storage needs one of its nodes."),
		field.Var(&a.NodeOne, "node", "", "", nodeName,
			"One node, the same as nodes with one item. Not together with nodes."),
		field.Var(&a.StorageID, "storage", "storage", "", storageID,
			"Storage that holds the file; it must allow "+a.content+" content.").Req().OnlyAtCreate(),
		field.Var(&a.File, "filename", "filename", "", a.filename(),
			"Name of the file on the storage, which identifies it; it may differ from the URL's. "+extensionsOf[a.content].text+".").Req().OnlyAtCreate(),
		field.Var(&a.URL, "url", "url", "", urls,
			"Where PVE downloads the file from, http or https. null stands for not known, which is fine while the file is there.").OrUnknown().OnlyAtCreate(),
		field.Sub(&a.Checksum, "checksum", "Checksum that PVE verifies when it downloads. A file that is there is not read again.", func(c *Checksum) []field.Node {
			return []field.Node{
				field.Var(&c.Algorithm, "algorithm", "checksum-algorithm", "", field.OneOf("sha256", "sha512", "sha1", "md5"),
					"sha256, sha512, sha1 or md5.").Req().OnlyAtCreate(),
				field.Var(&c.Value, "value", "checksum", "", checksumDigits,
					"The checksum in hex digits, as many as the algorithm has.").Req().OnlyAtCreate(),
			}
		}),
	)
}

func nodeList() field.Codec[[]string] {
	node := fullMatch(nodePattern)
	return field.Strings(field.ListOptions{Sep: ",", Example: "[pve01, pve02]", Check: func(s string) error {
		if !node.MatchString(s) {
			return fmt.Errorf("%q is not a node name", s)
		}
		return nil
	}})
}

// extensionsOf is what PVE takes as a file name of each content type (facts.md
// F), without case.
var extensionsOf = map[string]struct {
	re   *regexp.Regexp
	text string
	eg   string
}{
	"iso":    {regexp.MustCompile(`(?i)\.(?:iso|img)$`), "PVE takes .iso and .img there", "debian-13.1.0-amd64-netinst.iso"},
	"vztmpl": {regexp.MustCompile(`(?i)\.tar\.(?:gz|xz|zst)$`), "PVE takes .tar.gz, .tar.xz and .tar.zst there", "debian-13-standard_13.6.1-1_amd64.tar.zst"},
	"import": {regexp.MustCompile(`(?i)\.(?:qcow2|vmdk|raw)$`), "PVE takes .qcow2, .vmdk and .raw there", "debian-13-genericcloud-amd64.qcow2"},
}

var (
	plainName  = fullMatch(`[A-Za-z0-9_+=.~-]+`)
	compressed = regexp.MustCompile(`(?i)\.(?:xz|gz|bz2|zst|lzo|zip|7z)$`)
)

// filename refuses what PVE would refuse or silently rename.
func (a *Artifact) filename() field.Codec[string] {
	c, ext := field.Text(), extensionsOf[a.content]
	c.Type.Examples = []string{ext.eg}
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		switch {
		case err != nil:
			return s, err
		case strings.ContainsAny(s, `/\`):
			return s, fmt.Errorf("%q is a path; a file name alone belongs here", s)
		case !plainName.MatchString(s) || strings.HasPrefix(s, "."):
			return s, fmt.Errorf("%q holds characters that PVE would replace; use letters, digits and _ + = . ~ -", s)
		case len(s) > 255:
			return s, errors.New("a file name has at most 255 characters")
		case ext.re.MatchString(s):
			return s, nil
		case a.content == "import" && strings.HasSuffix(strings.ToLower(s), ".img"):
			return s, fmt.Errorf("PVE refuses .img as import content; cloud images named so are nearly always qcow2: write %s.qcow2 (filename may differ from the url)", s[:len(s)-4])
		case a.content == "import" && compressed.MatchString(s):
			return s, errors.New("PVE does not unpack disk images: it decompresses iso content only, and iso content cannot fill a disk; publish the image unpacked, as .qcow2, .vmdk or .raw")
		}
		return s, fmt.Errorf("%q has a wrong extension: %s", s, ext.text)
	}
	return c
}

func urlCodec() field.Codec[string] {
	c := field.Text()
	c.Type.Pattern = `^https?://`
	c.Type.Examples = []string{"https://example.com/images/file.iso"}
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		if err != nil {
			return s, err
		}
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return s, errors.New("not an http or https URL")
		case u.User != nil:
			return s, errors.New("a URL with user name or password does not belong in a manifest")
		case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
			return s, errors.New("a URL holds no blanks and no characters beyond ASCII; percent-encode them")
		}
		return s, nil
	}
	return c
}

// Refs implements Spec.
func (a *Artifact) Refs() []Reference { return nil }

// Secrets implements Spec.
func (a *Artifact) Secrets() []SecretReference { return nil }

// Validate implements Spec.
func (a *Artifact) Validate(report Report) {
	noNull(report, "nodes", a.NodeList)
	noNull(report, "node", a.NodeOne)
	switch l, n := a.NodeList.State(), a.NodeOne.State(); {
	case l != field.Absent && n != field.Absent:
		report("node", "node and nodes exclude each other; keep nodes")
	case l == field.Absent && n == field.Absent:
		report("nodes", "required: the nodes whose storage must hold the file")
	}
	if u, err := url.Parse(a.URL.Or("")); err == nil && a.content == "import" && compressed.MatchString(u.Path) {
		report("url", "%s is compressed, and PVE does not unpack disk images: it decompresses iso content only, and iso content cannot fill a disk; name an image that is not packed", path.Base(u.Path))
	}
	if a.Checksum == nil {
		return
	}
	alg, okA := a.Checksum.Algorithm.Get()
	val, okV := a.Checksum.Value.Get()
	if n := digestLength[alg]; okA && okV && len(val) != n {
		report("checksum.value", "a %s checksum has %d hex digits, this has %d", alg, n, len(val))
	}
}

// Warn implements Spec.
func (a *Artifact) Warn(report Report) {
	u := a.URL.Or("")
	if strings.HasPrefix(u, "http://") && a.Checksum == nil {
		report("url", "http without checksum: whoever sits on the way can change the file; use https, or set checksum")
	}
	if p, err := url.Parse(u); err == nil && a.content == "iso" && compressed.MatchString(p.Path) {
		report("url", "%s is compressed and would be stored so; PVE's download does not unpack it here", path.Base(p.Path))
	}
}

// Nodes implements ArtifactSpec: sorted, each once.
func (a *Artifact) Nodes() []string {
	if n, ok := a.NodeOne.Get(); ok {
		return []string{n}
	}
	out := slices.Clone(a.NodeList.Or(nil))
	slices.Sort(out)
	return slices.Compact(out)
}

// Storage implements ArtifactSpec.
func (a *Artifact) Storage() string { return a.StorageID.Or("") }

// Filename implements ArtifactSpec.
func (a *Artifact) Filename() string { return a.File.Or("") }

// VolID implements ArtifactSpec.
func (a *Artifact) VolID() string { return a.Storage() + ":" + a.content + "/" + a.Filename() }

// Download implements ArtifactSpec. PVE spells the algorithm's parameter with
// a hyphen, and wants both or neither (facts.md A i).
func (a *Artifact) Download() ([]field.Token, error) {
	u, ok := a.URL.Get()
	if !ok {
		return nil, errors.New("url: null stands for not known, and a missing file cannot be downloaded without one; name its URL")
	}
	out := []field.Token{{Key: "content", Value: a.content}, {Key: "filename", Value: a.Filename()}, {Key: "url", Value: u}}
	if c := a.Checksum; c != nil {
		out = append(out,
			field.Token{Key: "checksum", Value: strings.ToLower(c.Value.Or(""))},
			field.Token{Key: "checksum-algorithm", Value: c.Algorithm.Or("")})
	}
	return out, nil
}

// Fill gives a spec for adopt the file that was found; its URL is not known.
func (a *Artifact) Fill(nodes []string, storage, filename string) {
	a.NodeList, a.StorageID, a.File = field.Some(nodes), field.Some(storage), field.Some(filename)
	a.URL = field.Cleared[string]()
}
