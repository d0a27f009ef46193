package kind

// PlainKeys are the unnumbered keys that extra knows of a guest type.
func PlainKeys(guest string) []string {
	if guest == "lxc" {
		return ctKeys
	}
	return vmKeys
}
