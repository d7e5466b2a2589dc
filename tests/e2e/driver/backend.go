package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Backend is a provider of addresses that keeps its reservations in a folder, so that it outlives the
// driver, is shared by several copies of it, and can be changed behind their backs.
//
//	reserved/IP  a reservation: its handle, and the tag that the driver gave it
//	used/IP      there while the backend hands the address to somebody whom no binding authorizes
//	pinned/IP    the workload that the address is announced for
type Backend struct {
	Folder string
}

// Reservation is an address that the backend holds for us.
type Reservation struct {
	ID    string     `json:"id"`
	Tag   Tag        `json:"tag"`
	Since time.Time  `json:"since"`
	IP    netip.Addr `json:"-"`
}

// Tag says what a reservation was made for, so that it is found again after a crash.
type Tag struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Family    string `json:"family"`
}

var errExhausted = errors.New("the prefixes of the class have no free address")

// Open makes the folders.
func (b Backend) Open() error {
	for _, folder := range []string{"reserved", "used", "pinned"} {
		if err := os.MkdirAll(filepath.Join(b.Folder, folder), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// All returns every reservation.
func (b Backend) All() ([]Reservation, error) {
	files, err := os.ReadDir(filepath.Join(b.Folder, "reserved"))
	if err != nil {
		return nil, err
	}
	var all []Reservation
	for _, file := range files {
		if strings.HasPrefix(file.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(b.reserved(file.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		var reservation Reservation
		if err := json.Unmarshal(text, &reservation); err != nil {
			return nil, err
		}
		if reservation.IP, err = netip.ParseAddr(file.Name()); err != nil {
			return nil, err
		}
		all = append(all, reservation)
	}
	return all, nil
}

// Reserve returns the reservation with this tag, or makes one out of the prefixes. It leaves alone
// what is taken by other records.
func (b Backend) Reserve(tag Tag, prefixes []netip.Prefix, taken map[netip.Addr]bool) (Reservation, error) {
	all, err := b.All()
	if err != nil {
		return Reservation{}, err
	}
	reserved := map[netip.Addr]bool{}
	for _, reservation := range all {
		if reservation.Tag == tag && !taken[reservation.IP] {
			return reservation, nil
		}
		reserved[reservation.IP] = true
	}
	for _, prefix := range prefixes {
		for ip := prefix.Masked().Addr(); prefix.Contains(ip); ip = ip.Next() {
			if familyOf(ip) != tag.Family || taken[ip] || reserved[ip] {
				continue
			}
			id := "rsv-" + strings.ToLower(rand.Text())
			reservation := Reservation{ID: id, Tag: tag, Since: time.Now(), IP: ip}
			switch err := b.store(reservation); {
			case err == nil:
				return reservation, nil
			case !errors.Is(err, fs.ErrExist):
				return Reservation{}, err
			}
		}
	}
	return Reservation{}, errExhausted
}

// store fails with fs.ErrExist if the address is reserved already.
func (b Backend) store(reservation Reservation) error {
	text, err := json.Marshal(reservation)
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Join(b.Folder, "reserved"), ".draft-")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(text)
	if err := errors.Join(err, draft.Close()); err != nil {
		return err
	}
	return os.Link(draft.Name(), b.reserved(reservation.IP.String()))
}

// Has says whether the address is still reserved under this handle.
func (b Backend) Has(id string, ip netip.Addr) (bool, error) {
	text, err := os.ReadFile(b.reserved(ip.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	var reservation Reservation
	err = json.Unmarshal(text, &reservation)
	return reservation.ID == id, err
}

// Release gives up the reservation with this handle, and no later one of the same address.
func (b Backend) Release(id string, ip netip.Addr) error {
	has, err := b.Has(id, ip)
	if err != nil || !has {
		return err
	}
	return ignoreAbsent(os.Remove(b.reserved(ip.String())))
}

// IsUsed says whether somebody whom no binding authorizes has the address.
func (b Backend) IsUsed(ip netip.Addr) (bool, error) {
	_, err := os.Stat(filepath.Join(b.Folder, "used", ip.String()))
	return err == nil, ignoreAbsent(err)
}

// Pin announces the address for a workload.
func (b Backend) Pin(ip, workload string) error {
	return os.WriteFile(filepath.Join(b.Folder, "pinned", ip), []byte(workload), 0o644)
}

// Unpin withdraws it.
func (b Backend) Unpin(ip string) error {
	return ignoreAbsent(os.Remove(filepath.Join(b.Folder, "pinned", ip)))
}

func (b Backend) reserved(ip string) string {
	return filepath.Join(b.Folder, "reserved", ip)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func familyOf(ip netip.Addr) string {
	if ip.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
