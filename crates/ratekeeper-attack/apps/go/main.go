// Tells how Go's net/http understood a request.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync/atomic"
)

const secret = "a secret of at least thirty-two bytes"

var secrets atomic.Int64

// subject reads the token as most handlers do that use no framework.
func subject(request *http.Request) string {
	token, isBearer := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !isBearer || len(parts) != 3 {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(parts[0] + "." + parts[1]))
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		return ""
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Subject string `json:"sub"`
	}
	if err != nil || json.Unmarshal(body, &claims) != nil {
		return ""
	}
	return claims.Subject
}

// headers lists the values of all headers, and of the trailers that came after the body.
func headers(request *http.Request) string {
	var lines []string
	for _, all := range []http.Header{request.Header, request.Trailer} {
		for name, values := range all {
			lines = append(lines, strings.ToLower(name)+": "+strings.Join(values, ", "))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, " | ")
}

func told(route string) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		// Trailers come after the body.
		buffer := make([]byte, 1024)
		for {
			if _, err := request.Body.Read(buffer); err != nil {
				break
			}
		}
		if route == "secret" {
			secrets.Add(1)
		}
		session := ""
		if cookie, err := request.Cookie("session"); err == nil {
			session = cookie.Value
		}
		response.Header().Set("Content-Type", "text/plain")
		if route == "none" {
			response.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(response, "route=%s\nmethod=%s\nkey=%s\nsession=%s\nparameter=%s\nsub=%s\nhost=%s\n",
			route, request.Method, request.Header.Get("X-Api-Key"), session, request.URL.Query().Get("key"),
			subject(request), request.Host)
		fmt.Fprintf(response, "address=%s\nheaders=%s\nsecrets=%d\n",
			request.Header.Get("X-Forwarded-For"), headers(request), secrets.Load())
	}
}

func main() {
	routes := http.NewServeMux()
	routes.HandleFunc("/{$}", told("root"))
	routes.HandleFunc("POST /orders/export", told("export"))
	routes.HandleFunc("GET /admin/", told("admin"))
	routes.HandleFunc("/secret", told("secret"))
	routes.HandleFunc("/", told("none"))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], routes))
}
