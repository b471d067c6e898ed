# fish completion for tersor: put it into ~/.config/fish/completions/tersor.fish
# An empty description behind the tab: else fish shows the option's beside each word.
function __tersor_words
	printf '%s\t\n' $argv
end
function __tersor_list
	set -l lead (commandline -ct | string replace -r '^-[^=,]*=' '' | string match -r '.*,')
	__tersor_words "$lead"$argv
end
{{}}