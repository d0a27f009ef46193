package pvesim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// qemuConfigMethod is the method whose parameters are the keys of a VM's config.
func qemuConfigMethod() *schema.Method {
	return schema.Lookup("PUT", "/nodes/{node}/qemu/{vmid}/config")
}

// qemuNoKeys are parameters of the config and create calls that are no config keys.
func qemuNoKeys() map[string]bool {
	return map[string]bool{
		"node": true, "vmid": true, "digest": true, "delete": true, "revert": true, "force": true, "skiplock": true, "background_delay": true,
		"skip_cloud_init": true, "cdrom": true, "import-working-storage": true, "storage": true, "pool": true, "start": true, "unique": true,
		"archive": true, "bwlimit": true, "live-restore": true, "ha-managed": true,
	}
}

// qemuOwnKeys are config keys that PVE writes itself: no call sets them, but they may be named where keys are deleted or reverted.
func qemuOwnKeys() []string {
	return []string{"meta", "parent", "runningcpu", "runningmachine", "snaptime", "vmstate"}
}

// qemuKey says whether a name is a config key of VMs, as option_exists does.
func qemuKey(name string) bool {
	if slices.Contains(qemuOwnKeys(), name) {
		return true
	}
	if qemuNoKeys()[name] {
		return false
	}
	_, ok := qemuConfigMethod().Key(name)
	return ok
}

// family is a key without its index: scsi of scsi0; a key without an index is its own family.
func family(key string) string {
	return strings.TrimRight(key, "0123456789")
}

// The buses of drives that a guest can boot from, in PVE's order.
func bootBuses() []string { return []string{"ide", "scsi", "virtio", "sata"} }

// isDrive is is_valid_drivename.
func isDrive(key string) bool {
	f := family(key)
	switch f {
	case "ide", "scsi", "virtio", "sata", "efidisk", "tpmstate":
	default:
		return false
	}
	_, ok := qemuConfigMethod().Key(key)
	return ok && f != key
}

// driveKeys lists the drives of a section in PVE's order: bus by bus, firmware and TPM state last.
func driveKeys(s Section) []string {
	var out []string
	for _, bus := range append(bootBuses(), "efidisk", "tpmstate") {
		for i := range 31 {
			if k := bus + decimal(i); s[k] != "" && isDrive(k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// The keys by the privilege that changing them needs (check_vm_modify_config_perm). What is in none, and has no rule of its own, only
// root may set: args, lock, hookscript, hugepages…
func keyPrivilege(key string) (privs []string, anyOf bool) {
	switch f := family(key); {
	case slices.Contains(strings.Fields("cores cpu cpulimit cpuunits numa smp sockets vcpus affinity"), key), f == "numa":
		return []string{"VM.Config.CPU"}, false
	case slices.Contains(strings.Fields("memory balloon shares allow-ksm"), key):
		return []string{"VM.Config.Memory"}, false
	case slices.Contains(strings.Fields("acpi audio0 hotplug kvm machine rng0 scsihw smbios1 tablet vga watchdog arch"), key):
		return []string{"VM.Config.HWType"}, false
	case slices.Contains(strings.Fields("agent autostart bios description keyboard localtime migrate_downtime migrate_speed name "+
		"onboot ostype protection reboot startdate startup tdf template vmgenid spice_enhancements"), key):
		return []string{"VM.Config.Options"}, false
	case key == "freeze":
		return []string{"VM.PowerMgmt"}, false
	case slices.Contains(strings.Fields("boot bootdisk vmstatestorage"), key), f == "virtiofs":
		return []string{"VM.Config.Disk"}, false
	case f == "net" && f != key:
		return []string{"VM.Config.Network"}, false
	case slices.Contains(cloudinitKeys(), key), f == "ipconfig" && f != key:
		return []string{"VM.Config.Cloudinit", "VM.Config.Network"}, true
	case key == "vmstate":
		return []string{"VM.Config.Disk", "VM.PowerMgmt"}, false
	}
	return nil, false
}

// cloudinitKeys are the keys that go onto the cloud-init drive, ipconfigN apart.
func cloudinitKeys() []string {
	return []string{"cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "nameserver", "searchdomain", "sshkeys"}
}

// cloudinitPending are the keys whose change makes a running guest's cloud-init drive out of date.
func cloudinitPending(key string) bool {
	f := family(key)
	return slices.Contains(cloudinitKeys(), key) || key == "name" || (f == "ipconfig" || f == "net") && f != key
}

// fastPlug are the keys that never touch the running machine: a change is in force at once.
func fastPlug(key string) bool {
	if f := family(key); f == "ipconfig" && f != key || slices.Contains(cloudinitKeys(), key) {
		return true
	}
	return slices.Contains(strings.Fields(
		"description hookscript lock migrate_downtime migrate_speed name onboot protection shares startup tags vmstatestorage"), key)
}

var (
	plainInteger = regexp.MustCompile(`^\d+$`)
	plainNumber  = regexp.MustCompile(`^\d+(\.\d+)?$`)
)

// fileValue is what becomes of a value that is written to a config file and read again. The write checks less, and other things, than
// the schema (facts.md L, au-085, au-126): err is PVE's text then. What the file's line does not give back on reading is lost: keep is
// false (an empty sshkeys, an integer beyond 64 bits).
func fileValue(key string, value any) (text string, keep bool, err error) {
	p, ok := qemuConfigMethod().Key(key)
	if value == nil {
		return "", false, die("unable to parse value of '%s' - got undefined value", key)
	}
	v := Params{"v": value}.Str("v")
	switch {
	case key == "description":
		return strings.TrimRight(v, " \t\r\n"), true, nil
	case strings.ContainsAny(v, "\r\n"):
		return "", false, die("unable to parse value of '%s' - property contains a line feed", key)
	case ok && p.Type == schema.Integer:
		if !plainInteger.MatchString(v) {
			return "", false, die("unable to parse value of '%s' - type check ('integer') failed - got '%s'", key, v)
		}
		n, err := strconv.ParseUint(v, 10, 64)
		return strconv.FormatUint(n, 10), err == nil, nil
	case ok && p.Type == schema.Number && !plainNumber.MatchString(v):
		return "", false, die("unable to parse value of '%s' - type check ('number') failed - got '%s'", key, v)
	}
	text = strings.TrimSpace(v)
	if text == "" { // "key: " reads back as one blank
		text = " "
	}
	if text != v && ok && (p.Format != nil || p.FormatName != "") && p.Fault(key, text) != "" {
		return "", false, nil
	}
	return text, true, nil
}

// propMap reads key=value pairs without a schema.
func propMap(s string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(part, "="); ok {
			out[k] = v
		}
	}
	return out
}

// hotplugFeatures is what the hotplug key allows; 1 and an absent key are the default.
func hotplugFeatures(s Section) map[string]bool {
	v, ok := s["hotplug"]
	if !ok || v == "1" {
		v = "network,disk,usb"
	}
	out := map[string]bool{}
	for _, f := range splitList(v) {
		out[f] = f != "0"
	}
	return out
}
