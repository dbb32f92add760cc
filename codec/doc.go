// Package codec turns byte streams into frames and back.
package codec
