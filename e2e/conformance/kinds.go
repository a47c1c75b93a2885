package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
)

// A Served has the kinds that an API server serves, and the path that kubectl would request for each name of a kind.
type Served struct {
	Groups []ServedGroup `json:"groups"`
	Names  []NamedKind   `json:"names"`
}

// A ServedGroup has the resources of each of its versions.
type ServedGroup struct {
	Name      string            `json:"name"`
	Preferred string            `json:"preferred"`
	Versions  []ServedResources `json:"versions"`
}

type ServedResources struct {
	Version   string           `json:"version"`
	Resources []ServedResource `json:"resources"`
}

// A ServedResource has the names by which kubectl finds it.
type ServedResource struct {
	Name       string   `json:"name"`
	Singular   string   `json:"singularName"`
	Kind       string   `json:"kind"`
	ShortNames []string `json:"shortNames,omitempty"`
}

// A NamedKind is a name with the resource it stands for, such as "v1alpha1/gadgets.example.com", or nothing.
type NamedKind struct {
	Name string `json:"name"`
	Is   string `json:"is,omitempty"`
}

func kinds(r *rand.Rand, random int) []Served {
	var all []Served
	for range 101 + random/20 {
		all = append(all, served(r))
	}
	return all
}

func served(r *rand.Rand) Served {
	groups := []string{"apps", "apps.example.com", "batch", "batch.volcano.sh", "example.com", "example.com.au", "io"}
	r.Shuffle(len(groups), func(a, b int) { groups[a], groups[b] = groups[b], groups[a] })
	of := Served{Groups: []ServedGroup{group(r, "", []string{"v1"})}}
	for _, name := range groups[:1+r.IntN(3)] {
		versions := []string{"v1", "v1beta1", "v1alpha1", "v2"}
		r.Shuffle(len(versions), func(a, b int) { versions[a], versions[b] = versions[b], versions[a] })
		of.Groups = append(of.Groups, group(r, name, versions[:1+r.IntN(2)]))
	}
	mapper := mapperOf(of.Groups)
	for _, name := range namesOf(r, of.Groups) {
		of.Names = append(of.Names, NamedKind{name, mappingFor(mapper, name)})
	}
	return of
}

var words = []string{"web", "job", "thing", "my-part", "gadget", "wd", "gd"}

func group(r *rand.Rand, name string, versions []string) ServedGroup {
	made := ServedGroup{Name: name, Preferred: one(r, versions...)}
	for _, version := range versions {
		taken := map[string]bool{}
		of := ServedResources{Version: version, Resources: []ServedResource{}}
		for range r.IntN(3) + 1 {
			singular := one(r, words...)
			if taken[singular] {
				continue
			}
			taken[singular] = true
			kind := strings.ToUpper(singular[:1]) + strings.ReplaceAll(singular[1:], "-p", "P")
			resource := ServedResource{Name: singular + "s", Singular: singular, Kind: kind}
			if chance(r, 15) {
				resource.Singular = ""
			}
			for range r.IntN(3) {
				resource.ShortNames = append(resource.ShortNames, one(r, "wd", "gd", "th", "webs", "j"))
			}
			of.Resources = append(of.Resources, resource)
			if chance(r, 30) {
				of.Resources = append(of.Resources, ServedResource{Name: singular + "s/scale", Kind: "Scale"})
			}
		}
		made.Versions = append(made.Versions, of)
	}
	return made
}

func namesOf(r *rand.Rand, groups []ServedGroup) []string {
	var names []string
	for range 14 {
		group := groups[r.IntN(len(groups))]
		version := group.Versions[r.IntN(len(group.Versions))]
		if chance(r, 20) {
			group = groups[r.IntN(len(groups))]
		}
		resource := version.Resources[0]
		word := one(r, append([]string{resource.Name, resource.Kind, strings.ToLower(resource.Kind), one(r, words...), "th", "j"}, resource.ShortNames...)...)
		name := word
		switch r.IntN(6) {
		case 0, 1:
		case 2:
			name += "." + group.Name
		case 3:
			name += "." + group.Name[:r.IntN(len(group.Name)+1)]
		default:
			name += "." + one(r, version.Version, version.Version, "v1", "v3") + "." + group.Name
		}
		// A name with an empty part, or with a dot after a cut group, is refused before a request is sent.
		if !strings.Contains(name, "..") && (!strings.HasSuffix(name, ".") || strings.Count(name, ".") == 2) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func mapperOf(groups []ServedGroup) meta.RESTMapper {
	var mapped []*restmapper.APIGroupResources
	server := &fake.FakeDiscovery{Fake: &clienttesting.Fake{}}
	for _, group := range groups {
		of := &restmapper.APIGroupResources{VersionedResources: map[string][]metav1.APIResource{}}
		of.Group = metav1.APIGroup{Name: group.Name, PreferredVersion: metav1.GroupVersionForDiscovery{Version: group.Preferred}}
		for _, version := range group.Versions {
			named := schema.GroupVersion{Group: group.Name, Version: version.Version}.String()
			of.Group.Versions = append(of.Group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: named, Version: version.Version})
			list := &metav1.APIResourceList{GroupVersion: named}
			for _, one := range version.Resources {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: one.Name, SingularName: one.Singular, Kind: one.Kind, ShortNames: one.ShortNames, Namespaced: true})
			}
			of.VersionedResources[version.Version] = list.APIResources
			server.Resources = append(server.Resources, list)
		}
		mapped = append(mapped, of)
	}
	return restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(mapped), server, nil)
}

// mappingFor is a copy of the function of this name in cli-runtime, which is not exported.
func mappingFor(mapper meta.RESTMapper, name string) string {
	full, short := schema.ParseResourceArg(name)
	var kind schema.GroupVersionKind
	if full != nil {
		kind, _ = mapper.KindFor(*full)
	}
	if kind.Empty() {
		kind, _ = mapper.KindFor(short.WithVersion(""))
	}
	var mapping *meta.RESTMapping
	var err error
	if !kind.Empty() {
		mapping, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
	} else {
		fullKind, shortKind := schema.ParseKindArg(name)
		if fullKind == nil {
			of := shortKind.WithVersion("")
			fullKind = &of
		}
		mapping, err = mapper.RESTMapping(fullKind.GroupKind(), fullKind.Version)
		if err != nil {
			mapping, err = mapper.RESTMapping(shortKind)
		}
	}
	if err != nil {
		return ""
	}
	of := mapping.Resource
	return fmt.Sprintf("%s/%s.%s", of.Version, of.Resource, of.Group)
}
