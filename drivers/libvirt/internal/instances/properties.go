// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/plugins"
)

// PropertiesSuffix is what the file with the properties of an image is called by, after the image's
// name. It is JSON: an object of strings, numbers and truth values.
const PropertiesSuffix = ".properties.json"

// What a file of properties may have at most.
const (
	maxPropertiesFile = 64 << 10
	maxProperties     = 256
	maxPropertyName   = 255
	maxPropertyValue  = 1024
)

// properties returns the properties of an instance's image: those of the request, and from the file
// beside the image those that the request lacks. There need not be such a file.
func (j *job) properties(spec plugins.InstanceSpec) (map[string]string, error) {
	if spec.Image == "" {
		return spec.ImageProperties, nil
	}
	root, err := j.imagesOf(spec.Image)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	text, err := readSmall(root, spec.Image+PropertiesSuffix)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) {
		return spec.ImageProperties, nil
	}
	var out map[string]string
	if err == nil {
		out, err = ParseProperties(text)
	}
	if err != nil {
		return nil, &failure{
			reason: fmt.Sprintf("the properties of the image %.60q cannot be read", spec.Image),
			err: fmt.Errorf("%s%s: %w; it must be a JSON object such as {\"hw_firmware_type\": \"uefi\"}",
				spec.Image, PropertiesSuffix, err),
		}
	}
	maps.Copy(out, spec.ImageProperties)
	return out, nil
}

// readSmall reads a file of properties. Opening a pipe would wait forever.
func readSmall(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxPropertiesFile+1))
	if len(text) > maxPropertiesFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxPropertiesFile)
	}
	return text, err
}

// ParseProperties reads the properties of an image.
func ParseProperties(text []byte) (map[string]string, error) {
	value, err := jsonkit.Decode(text)
	if err != nil {
		return nil, err
	}
	object, is := value.(*jsonkit.Object)
	switch {
	case !is:
		return nil, errors.New("it is no object")
	case len(object.Names()) > maxProperties:
		return nil, fmt.Errorf("it has %d properties, and may have %d", len(object.Names()), maxProperties)
	}
	out := make(map[string]string, len(object.Names()))
	for _, name := range object.Names() {
		one, _ := object.Get(name)
		text := ""
		switch v := one.(type) {
		case string:
			text = v
		case bool:
			text = fmt.Sprint(v)
		case jsonkit.Number:
			text = string(v)
		default:
			return nil, fmt.Errorf("the property %.60q is not a string, a number or a truth value", name)
		}
		if name == "" || len(name) > maxPropertyName || len(text) > maxPropertyValue {
			return nil, fmt.Errorf(
				"the property %.60q has a name of %d bytes, which may have 1 to %d, and a value of %d, which "+
					"may have %d",
				name, len(name), maxPropertyName, len(text), maxPropertyValue)
		}
		out[name] = text
	}
	return out, nil
}

// imagesOf opens the directory of images, for an image. A name with a path in it names no image,
// and no file of properties is one.
func (j *job) imagesOf(name string) (*os.Root, error) {
	dir, usual := cmp.Or(j.setup.images, DefaultImages), j.setup.images == ""
	unfit := strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '/' || r == 0x7f })
	if unfit || name == "." || name == ".." || len(name) > 255 || strings.HasSuffix(name, PropertiesSuffix) {
		return nil, j.noImage(name)
	}
	root, err := os.OpenRoot(dir)
	switch {
	case usual && errors.Is(err, fs.ErrNotExist):
		return nil, j.noImage(name)
	case err != nil:
		return nil, &plugins.NotReady{Reason: fmt.Sprintf("the directory of images (%s) cannot be used: %v",
			ImagesKey, err)}
	}
	return root, nil
}

func (j *job) noImage(name string) error { return j.fault("there is no image %.60q", name) }
