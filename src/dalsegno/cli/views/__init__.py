"""Tables, trees and sentences that commands print."""
