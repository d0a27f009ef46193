package sops

// Decode is Open for bytes that were read already, from a commit for example.
// name is what messages call the file. The document cannot be saved.
func Decode(name string, raw []byte, env Env) (*Document, error) {
	d, err := decode(raw, env)
	if err != nil {
		return nil, at(name, err)
	}
	d.path = name
	return d, nil
}
